// Computes a SHA-256 digest incrementally, in the hexadecimal form that `sha256sum` prints. Components that may not
// depend on the image builder use this class instead of image::Digester.
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
