// Computes SHA-256 incrementally, in hexadecimal as `sha256sum` prints it.
//
// Threading: not thread-safe.
#pragma once

#include <openssl/evp.h>

#include <memory>
#include <string>
#include <string_view>

namespace adaptdl::kube {

class Sha256 {
 public:
  Sha256();
  void update(std::string_view bytes);
  // Returns the digest of all bytes so far.
  std::string hex() const;

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const;
  };
  using Context = std::unique_ptr<EVP_MD_CTX, Free>;
  Context context_;
};

}  // namespace adaptdl::kube
