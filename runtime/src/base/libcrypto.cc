#include "base/libcrypto.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "adaptdl/error.h"

namespace adaptdl {
namespace {

constexpr const char* kLibrary = "libcrypto.so.3";
constexpr const char* kRemedy = "install OpenSSL 3 (on Debian and Ubuntu: apt-get install libssl3)";

Libcrypto load() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error(fmt::format("cannot load {}: {}; {}", kLibrary, ::dlerror(), kRemedy));
  Libcrypto loaded;
#define ADAPTDL_LOAD(name)                                                    \
  loaded.name = reinterpret_cast<decltype(&::name)>(::dlsym(library, #name)); \
  if (loaded.name == nullptr) throw Error(fmt::format("{} does not contain " #name "; {}", kLibrary, kRemedy));
  ADAPTDL_LIBCRYPTO(ADAPTDL_LOAD)
#undef ADAPTDL_LOAD
  return loaded;
}

}  // namespace

const Libcrypto& libcrypto() {
  static const Libcrypto loaded = load();
  return loaded;
}

}  // namespace adaptdl
