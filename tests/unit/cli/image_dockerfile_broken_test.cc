#include <doctest/doctest.h>

#include <string>

#include "adaptdl/error.h"
#include "image/dockerfile/dockerfile.h"

namespace image_dockerfile_broken_test {

namespace {

struct Broken {
  const char* text;
  const char* message;
};

const Broken kBroken[] = {
#include "image_dockerfile_broken.inc"
};

std::string error_of(const char* text) {
  try {
    adaptdl::image::parse_dockerfile(text, "Dockerfile");
  } catch (const adaptdl::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the error for an invalid Dockerfile gives the file, line and reason") {
  for (const Broken& broken : kBroken) {
    CAPTURE(broken.text);
    CHECK(error_of(broken.text) == broken.message);
  }
}

}  // namespace image_dockerfile_broken_test
