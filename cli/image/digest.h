// Content digests, as registries write them: "sha256:" and 64 hexadecimal digits.
//
// Threading: a Digester belongs to one thread at a time; the rest are values and plain functions.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace adaptdl::image {

// Whether it is a digest of sha256 or sha512, in lower case.
bool is_digest(std::string_view text);

// The hexadecimal digits of a digest. REQUIRES: is_digest(digest).
std::string_view hex_of(std::string_view digest);

// Takes bytes as they come. Copies go their own ways.
class Digester {
 public:
  // By the algorithm of that name, sha256 or sha512. Throws Error.
  explicit Digester(std::string_view algorithm = "sha256");
  // By the algorithm of a digest. Throws Error if it is none.
  static Digester of(std::string_view digest);
  ~Digester();
  Digester(const Digester& other);
  Digester& operator=(const Digester& other);
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;

  void update(std::string_view bytes);
  // Of all bytes until now; more may follow.
  std::string digest() const;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// The digest of `bytes` by sha256.
std::string sha256(std::string_view bytes);

}  // namespace adaptdl::image
