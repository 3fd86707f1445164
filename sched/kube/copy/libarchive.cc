#include "kube/copy/libarchive.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "adaptdl/error.h"

namespace adaptdl::kube {
namespace {

void* open_library(const char* name, const char* package) {
  if (void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  throw Error(fmt::format("{} not found; install {}", name, package));
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) throw Error(fmt::format("the installed libarchive lacks {}; update it", name));
}

#define ADAPTDL_FIND(name) find(library, #name, functions.name);

Libarchive load_libarchive() {
  void* library = open_library("libarchive.so.13", "libarchive13");
  Libarchive functions;
  ADAPTDL_LIBARCHIVE(ADAPTDL_FIND)
  return functions;
}

#undef ADAPTDL_FIND

}  // namespace

const Libarchive& libarchive() {
  static const Libarchive functions = load_libarchive();
  return functions;
}

}  // namespace adaptdl::kube
