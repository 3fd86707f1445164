#include "image/base/digest.h"

#include <doctest/doctest.h>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"

namespace image_digest_test {

using namespace adaptdl;
using namespace adaptdl::image;

TEST_CASE("digests match the examples in FIPS 180") {
  CHECK(sha256("abc") == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Digester sha512("sha512");
  sha512.update("abc");
  CHECK(sha512.digest() ==
        "sha512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d442"
        "3643ce80e2a9ac94fa54ca49f");
}

TEST_CASE("incremental updates yield the digest of the whole input, and copies are independent") {
  Digester digester = Digester::of(sha256(""));
  digester.update("a");
  Digester copy = digester;
  digester.update("b");
  CHECK(digester.digest() == sha256("ab"));
  digester.update("c");
  copy.update("d");
  CHECK(digester.digest() == sha256("abc"));
  CHECK(copy.digest() == sha256("ad"));
  copy = digester;
  CHECK(copy.digest() == sha256("abc"));
}

TEST_CASE("only sha256 and sha512 digests in lowercase hexadecimal are valid") {
  const std::string hex(64, 'a');
  CHECK(is_digest("sha256:" + hex));
  CHECK(is_digest("sha512:" + hex + hex));
  CHECK(hex_of("sha256:" + hex) == hex);
  for (const std::string& text : {hex, "sha256:" + hex + "a", "sha256:" + hex.substr(1), "sha512:" + hex, "md5:" + hex,
                                  "sha256:" + std::string(64, 'A'), "sha256:" + std::string(64, 'g'),
                                  std::string("sha256:"), std::string(":"), std::string()}) {
    CAPTURE(text);
    CHECK_FALSE(is_digest(text));
    CHECK_THROWS_AS(Digester::of(text), Error);
  }
  CHECK_GOLDEN(::testing::error_of([&] { Digester("md5"); }));
}

}  // namespace image_digest_test
