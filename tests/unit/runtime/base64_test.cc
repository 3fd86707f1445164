#include "base/base64.h"

#include <doctest/doctest.h>

namespace base64_test {

using namespace adaptdl;

TEST_CASE("encoding and decoding match the examples of RFC 4648") {
  const std::pair<const char*, const char*> examples[] = {{"", ""},
                                                          {"f", "Zg=="},
                                                          {"fo", "Zm8="},
                                                          {"foo", "Zm9v"},
                                                          {"foob", "Zm9vYg=="},
                                                          {"fooba", "Zm9vYmE="},
                                                          {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : examples) {
    CHECK(encode_base64(bytes) == text);
    CHECK(decode_base64(text) == bytes);
  }
}

TEST_CASE("decoding reverses encoding for arbitrary bytes and ignores line breaks") {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += static_cast<char>(i * i * 31 + 255 - i % 256);
  std::string text = encode_base64(bytes);
  CHECK(decode_base64(text) == bytes);
  for (std::size_t at = 64; at < text.size(); at += 66) text.insert(at, "\r\n");
  CHECK(decode_base64(text) == bytes);
}

TEST_CASE("invalid base64 is rejected") {
  for (const char* text : {"Z", "Zg", "Zg=", "Zg===", "=Zg=", "Z===", "Zm9v=", "Zm9vZg==Zm9v", "Zm9_", "Zm9\xc3"}) {
    CAPTURE(text);
    CHECK_FALSE(decode_base64(text));
  }
}

}  // namespace base64_test
