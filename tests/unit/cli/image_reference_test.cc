#include "image/registry/reference.h"

#include <doctest/doctest.h>

#include "adaptdl/error.h"

namespace image_reference_test {

using namespace adaptdl;
using adaptdl::image::Reference;

namespace {

const std::string kDigest = "sha256:" + std::string(64, 'a');

std::string refusal(const std::string& text) {
  try {
    Reference::parse(text);
    return "taken";
  } catch (const UsageError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("names are completed as in Docker, and their short forms parse to the same reference") {
  struct Case {
    std::string text, full, brief;
  };
  const Case cases[] = {
      {"busybox", "docker.io/library/busybox", "busybox"},
      {"busybox:1.36", "docker.io/library/busybox:1.36", "busybox:1.36"},
      {"docker.io/busybox", "docker.io/library/busybox", "busybox"},
      {"index.docker.io/library/busybox", "docker.io/library/busybox", "busybox"},
      {"user/tool", "docker.io/user/tool", "user/tool"},
      {"library/a/b", "docker.io/library/a/b", "library/a/b"},
      {"busybox@" + kDigest, "docker.io/library/busybox@" + kDigest, "busybox@" + kDigest},
      {"localhost/x", "localhost/x", "localhost/x"},
      {"local/x", "docker.io/local/x", "local/x"},
      {"localhost:5000/x:y", "localhost:5000/x:y", "localhost:5000/x:y"},
      {"Registry/x", "Registry/x", "Registry/x"},
      {"quay.io/a/b/c:1@" + kDigest, "quay.io/a/b/c:1@" + kDigest, "quay.io/a/b/c:1@" + kDigest},
      {"[::1]:5000/x", "[::1]:5000/x", "[::1]:5000/x"},
      {"[2001:db8::1]/x:t", "[2001:db8::1]/x:t", "[2001:db8::1]/x:t"},
      {"10.0.0.7:32000/adaptdl", "10.0.0.7:32000/adaptdl", "10.0.0.7:32000/adaptdl"},
      {"a.b/x__y.z-w--v_u", "a.b/x__y.z-w--v_u", "a.b/x__y.z-w--v_u"},
      {"x:5000", "docker.io/library/x:5000", "x:5000"},
      {"docker.io/a.io/x", "docker.io/a.io/x", "docker.io/a.io/x"},
      {"docker.io/localhost/x", "docker.io/localhost/x", "docker.io/localhost/x"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.text);
    const Reference reference = Reference::parse(each.text);
    CHECK(reference.full() == each.full);
    CHECK(reference.brief() == each.brief);
    CHECK(Reference::parse(reference.full()) == reference);
    CHECK(Reference::parse(reference.brief()) == reference);
  }
}

TEST_CASE("the version of a reference is its digest, else its tag, else latest") {
  CHECK(Reference::parse("x:1@" + kDigest).version() == kDigest);
  CHECK(Reference::parse("x:1").version() == "1");
  CHECK(Reference::parse("x").version() == "latest");
}

TEST_CASE("the error for an invalid name states which part is invalid") {
  CHECK(refusal("Busybox") == "invalid image name 'Busybox': repository 'Busybox' must be lowercase");
  CHECK(refusal("a.b/x:") ==
        "invalid image name 'a.b/x:': tag '' must be 1 to 128 letters, digits, '_', '.' or '-', and must not begin "
        "with '.' or '-'");
  CHECK(refusal("x@sha256:1") ==
        "invalid image name 'x@sha256:1': digest 'sha256:1' must be sha256: with 64 or sha512: with 128 "
        "lowercase hexadecimal digits");
  CHECK(refusal("https://a.b/x") ==
        "invalid image name 'https://a.b/x': name 'https://a.b/x' must not be a URL; remove http:// or https://");
  CHECK(refusal("a_b.c/x") == "invalid image name 'a_b.c/x': registry 'a_b.c' must be HOST or HOST:PORT");
  CHECK(refusal("") == "invalid image name '': repository '' must not be empty");
  CHECK(refusal(std::string(64, 'a')).find("looks like an image ID") != std::string::npos);
  CHECK(refusal("x/" + std::string(64, 'a')) == "taken");
}

TEST_CASE("a repository is limited to 255 characters and a tag to 128") {
  CHECK(refusal("a.b/" + std::string(255, 'x')) == "taken");
  CHECK(refusal("a.b/" + std::string(256, 'x')).ends_with("must not be longer than 255 characters"));
  CHECK(refusal(std::string(248, 'x')).ends_with("must not be longer than 255 characters"));  // library/ is prepended
  CHECK(refusal("x:" + std::string(128, 't')) == "taken");
  CHECK(refusal("x:" + std::string(129, 't')).find(": tag '") != std::string::npos);
}

TEST_CASE("misplaced characters are rejected with a one-line error") {
  for (const char* text : {"a//b",     "/a",         "a/",     "a..b",         "a___b",      "a.-b",        "-a",
                           "a-",       "_a",         "a_",     ".a",           "a b",        "a\nb",        "a:t:u",
                           "a:.t",     "a:-t",       "a:t/u",  "a@",           "a:\xc3\xa9", "[::1:5000/x", "[::1]x/y",
                           "[g::1]/x", "a.b:port/x", "a.b:/x", "a.b:123456/x", "-a.b/x",     "a..b/x",      "a.b/"}) {
    CAPTURE(text);
    const std::string message = refusal(text);
    CHECK(message != "taken");
    CHECK(message.find('\n') == std::string::npos);
  }
}

}  // namespace image_reference_test
