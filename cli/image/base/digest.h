// Content digests in registry notation, such as "sha256:" followed by 64 hexadecimal digits.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace adaptdl::image {

// Returns whether the text is a sha256 or sha512 digest, in lower case.
bool is_digest(std::string_view text);

// Returns the hexadecimal digits of a digest. REQUIRES: is_digest(digest).
std::string_view hex_of(std::string_view digest);

// Computes a digest incrementally. Copies are independent of the original.
class Digester {
 public:
  // `algorithm` is sha256 or sha512. Throws Error for any other algorithm.
  explicit Digester(std::string_view algorithm = "sha256");
  // Returns a Digester with the algorithm of `digest`. Throws Error if `digest` is not valid.
  static Digester of(std::string_view digest);
  ~Digester();
  Digester(const Digester& other);
  Digester& operator=(const Digester& other);
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;

  void update(std::string_view bytes);
  // Returns the digest of all bytes so far; more bytes may follow.
  std::string digest() const;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Returns the sha256 digest of `bytes`.
std::string sha256(std::string_view bytes);

}  // namespace adaptdl::image
