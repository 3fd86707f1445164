#include "kube/copy/sha256.h"

#include <array>

#include "adaptdl/error.h"
#include "base/libcrypto.h"

namespace adaptdl::kube {

void Sha256::Free::operator()(EVP_MD_CTX* context) const { libcrypto().EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(libcrypto().EVP_MD_CTX_new()) {
  if (!context_ || libcrypto().EVP_DigestInit_ex(context_.get(), libcrypto().EVP_sha256(), nullptr) != 1)
    throw Error("OpenSSL does not provide SHA-256 on this machine");
}

void Sha256::update(std::string_view bytes) {
  if (libcrypto().EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) != 1)
    throw Error("OpenSSL cannot compute a SHA-256 checksum");
}

std::string Sha256::hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  const Context copy(libcrypto().EVP_MD_CTX_new());
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  if (!copy || libcrypto().EVP_MD_CTX_copy_ex(copy.get(), context_.get()) != 1 ||
      libcrypto().EVP_DigestFinal_ex(copy.get(), digest.data(), &size) != 1)
    throw Error("OpenSSL cannot compute a SHA-256 checksum");
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += {kDigits[digest[i] >> 4], kDigits[digest[i] & 15]};
  return text;
}

}  // namespace adaptdl::kube
