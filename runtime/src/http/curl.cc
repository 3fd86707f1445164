#include "http/curl.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include "adaptdl/error.h"

namespace adaptdl::http {
namespace {

constexpr const char* kLibrary = "libcurl.so.4";
constexpr const char* kRemedy = "install libcurl 7.77 or later (on Debian and Ubuntu: apt-get install libcurl4)";

Curl load() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error(fmt::format("cannot load {}, which HTTP requires: {}; {}", kLibrary, ::dlerror(), kRemedy));
  Curl loaded;
#define ADAPTDL_LOAD(name)                                                                \
  loaded.name = reinterpret_cast<decltype(loaded.name)>(::dlsym(library, "curl_" #name)); \
  if (!loaded.name) throw Error(fmt::format("{} does not contain curl_" #name "; {}", kLibrary, kRemedy));
  ADAPTDL_CURL_FUNCTIONS(ADAPTDL_LOAD)
#undef ADAPTDL_LOAD
  if (loaded.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) throw Error("cannot start libcurl");
  return loaded;
}

}  // namespace

const Curl& curl() {
  static const Curl loaded = load();
  return loaded;
}

Easy new_easy() {
  Easy handle(curl().easy_init());
  if (!handle) throw Error("cannot start libcurl; is the machine out of memory?");
  return handle;
}

Multi new_multi() {
  Multi handle(curl().multi_init());
  if (!handle) throw Error("cannot start libcurl; is the machine out of memory or file descriptors?");
  return handle;
}

}  // namespace adaptdl::http
