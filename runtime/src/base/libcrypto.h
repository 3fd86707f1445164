// OpenSSL's libcrypto, loaded on first use. Linking to it would add milliseconds to every start of the command.
//
// Threading: libcrypto() may be called from any thread. Lifetime: the library stays loaded.
#pragma once

#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace adaptdl {

#define ADAPTDL_LIBCRYPTO(X) \
  X(EVP_MD_CTX_new)          \
  X(EVP_MD_CTX_free)         \
  X(EVP_MD_CTX_copy_ex) X(EVP_DigestInit_ex) X(EVP_DigestUpdate) X(EVP_DigestFinal_ex) X(EVP_sha256) X(HMAC)

struct Libcrypto {
#define ADAPTDL_FUNCTION(name) decltype(&::name) name;
  ADAPTDL_LIBCRYPTO(ADAPTDL_FUNCTION)
#undef ADAPTDL_FUNCTION
};

// Loads the library if necessary. If it is not installed, throws Error, which names the package to install.
const Libcrypto& libcrypto();

}  // namespace adaptdl
