#include "base/embedded_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"

namespace adaptdl {
namespace {

// Writes the library to a file in memory and returns its descriptor. The descriptor is never closed: its number is part
// of the path by which the dynamic loader identifies the library, so the number must not be reused for another library.
int write_to_memory(const EmbeddedLibrary& library) {
  const auto fail = [&library] {
    throw Error(fmt::format("cannot load the library for {}: {}; free some memory, or raise `ulimit -n`",
                            library.purpose, std::strerror(errno)));
  };
  const int file = ::memfd_create("adaptdl-library", MFD_CLOEXEC);
  if (file < 0) fail();
  for (std::string_view left = library.bytes; !left.empty();) {
    const ssize_t count = ::write(file, left.data(), left.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail();
    left.remove_prefix(static_cast<std::size_t>(count));
  }
  return file;
}

}  // namespace

void* load_function(const EmbeddedLibrary& library, const char* name) {
  const std::string path = fmt::format("/proc/self/fd/{}", write_to_memory(library));
  void* const loaded = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const function = loaded == nullptr ? nullptr : ::dlsym(loaded, name);
  if (function == nullptr) {
    throw Error(
        fmt::format("cannot load the library for {}: {}; install {}", library.purpose, ::dlerror(), library.package));
  }
  return function;
}

}  // namespace adaptdl
