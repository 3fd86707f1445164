#include "image/registry/reference.h"

#include <doctest/doctest.h>

#include "adaptdl/error.h"
#include "golden.h"

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

TEST_CASE("image names are completed as in Docker, and their short forms parse to the same reference") {
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

TEST_CASE("the version of an image reference is its digest, else its tag, else latest") {
  CHECK(Reference::parse("x:1@" + kDigest).version() == kDigest);
  CHECK(Reference::parse("x:1").version() == "1");
  CHECK(Reference::parse("x").version() == "latest");
}

TEST_CASE("the error for an invalid image name states which part is invalid") {
  CHECK_GOLDEN(refusal("Busybox"));
  CHECK_GOLDEN(refusal("a.b/x:"));
  CHECK_GOLDEN(refusal("x@sha256:1"));
  CHECK_GOLDEN(refusal("https://a.b/x"));
  CHECK_GOLDEN(refusal("a_b.c/x"));
  CHECK_GOLDEN(refusal(""));
  CHECK_GOLDEN(refusal(std::string(64, 'a')));
  CHECK(refusal("x/" + std::string(64, 'a')) == "taken");
}

TEST_CASE("a repository name is limited to 255 characters and a tag to 128") {
  CHECK(refusal("a.b/" + std::string(255, 'x')) == "taken");
  CHECK_GOLDEN(refusal("a.b/" + std::string(256, 'x')));
  CHECK_GOLDEN(refusal(std::string(248, 'x')));  // library/ is prepended
  CHECK(refusal("x:" + std::string(128, 't')) == "taken");
  CHECK_GOLDEN(refusal("x:" + std::string(129, 't')));
}

TEST_CASE("misplaced characters in an image name are rejected with a one-line error") {
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
