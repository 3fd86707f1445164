// Reads any text as an ignore file, and its lines as paths. Either the text is refused with a one-line printable error,
// or no directory is skipped if it contains a path that is not ignored.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/text_parts.h"
#include "image/base/clean_path.h"
#include "image/dockerfile/ignore_file.h"

using namespace adaptdl::image;

namespace {

void check_path(const IgnoreFile& ignore, const std::string& path) {
  const bool ignored = ignore.ignores(path);
  for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
    if (ignore.skips_directory(path.substr(0, slash)) && !ignored) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const IgnoreFile ignore = IgnoreFile::parse(text, ".dockerignore");
    constexpr int kMaxPaths = 20;
    int paths = 0;
    for (const std::string& line : adaptdl::split(text, '\n')) {
      const std::string path = clean_path(adaptdl::trimmed(line));
      if (path.starts_with('/') || path.starts_with("..") || path == "." || ++paths > kMaxPaths) continue;
      check_path(ignore, path);
    }
  } catch (const adaptdl::Error& error) {
    const std::string_view why = error.what();
    if (!why.starts_with(".dockerignore:") || why != adaptdl::one_line(why, why.size())) std::abort();
  }
  return 0;
}
