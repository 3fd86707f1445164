#include "image/base/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstdint>

#include "adaptdl/error.h"
#include "base/printable.h"

namespace adaptdl::image {
namespace {

struct Deleter {
  void operator()(EVP_MD_CTX* context) const { ::EVP_MD_CTX_free(context); }
};
using Handle = std::unique_ptr<EVP_MD_CTX, Deleter>;

Handle new_handle() {
  Handle handle(::EVP_MD_CTX_new());
  if (!handle) throw Error("OpenSSL cannot create a digest context; is the machine out of memory?");
  return handle;
}

void check_result(int result) {
  if (result != 1) throw Error("OpenSSL cannot compute a digest; does its configuration forbid SHA-2?");
}

std::size_t digits_of(std::string_view algorithm) {
  return algorithm == "sha256" ? 64 : algorithm == "sha512" ? 128 : 0;
}

}  // namespace

bool is_digest(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view hex = text.substr(colon + 1);
  return !hex.empty() && hex.size() == digits_of(text.substr(0, colon)) &&
         std::all_of(hex.begin(), hex.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string_view hex_of(std::string_view digest) { return digest.substr(digest.find(':') + 1); }

struct Digester::Context {
  std::string algorithm;
  Handle handle = new_handle();
};

Digester::Digester(std::string_view algorithm) : context_(std::make_unique<Context>()) {
  context_->algorithm = algorithm;
  if (digits_of(algorithm) == 0)
    throw Error(fmt::format("unsupported digest algorithm '{}': expected sha256 or sha512", one_line(algorithm, 40)));
  check_result(
      ::EVP_DigestInit_ex(context_->handle.get(), algorithm == "sha256" ? ::EVP_sha256() : ::EVP_sha512(), nullptr));
}

Digester Digester::of(std::string_view digest) {
  if (!is_digest(digest))
    throw Error(fmt::format("invalid digest '{}': expected sha256:HEX or sha512:HEX", one_line(digest, 160)));
  return Digester(digest.substr(0, digest.find(':')));
}

Digester::~Digester() = default;
Digester::Digester(Digester&&) noexcept = default;
Digester& Digester::operator=(Digester&&) noexcept = default;

Digester::Digester(const Digester& other) : context_(std::make_unique<Context>()) {
  context_->algorithm = other.context_->algorithm;
  check_result(::EVP_MD_CTX_copy_ex(context_->handle.get(), other.context_->handle.get()));
}

Digester& Digester::operator=(const Digester& other) { return *this = Digester(other); }

void Digester::update(std::string_view bytes) {
  check_result(::EVP_DigestUpdate(context_->handle.get(), bytes.data(), bytes.size()));
}

std::string Digester::digest() const {
  const Digester copy(*this);
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  check_result(::EVP_DigestFinal_ex(copy.context_->handle.get(), bytes, &size));
  std::string text = copy.context_->algorithm + ":";
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

std::string sha256(std::string_view bytes) {
  Digester digester;
  digester.update(bytes);
  return digester.digest();
}

}  // namespace adaptdl::image
