// Shared by the tests of unpacking layers. A program that includes this header becomes root before main, while it has
// only one thread; if another user started it, it enters a user namespace for this.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "adaptdl/error.h"
#include "image/layer/unpack.h"
#include "image_temporary.h"

namespace image_unpack_support {

using namespace adaptdl;
using namespace adaptdl::image;
namespace fs = std::filesystem;

// Lists everything in a directory except layers: paths, modes, times and contents.
inline std::string listing(const fs::path& directory) {
  std::set<std::string> lines;
  std::error_code error;
  fs::recursive_directory_iterator each(directory, error);
  for (; !error && each != fs::recursive_directory_iterator(); each.increment(error)) {
    const fs::path& path = each->path();
    if (path.extension() == ".layer") continue;
    struct stat info {};
    REQUIRE(::lstat(path.c_str(), &info) == 0);
    std::string line = fmt::format("{} {:o} ", path.lexically_relative(directory).string(), info.st_mode);
    if (S_ISLNK(info.st_mode)) line += fs::read_symlink(path).string();
    if (S_ISREG(info.st_mode)) line += fmt::format("{} {}", info.st_mtim.tv_sec, read_file(path));
    lines.insert(line + '\n');
  }
  CHECK(!error);
  return fmt::format("{}", fmt::join(lines, ""));
}

// Returns the error from unpacking the layer, or "". Checks that nothing outside of the root changes.
inline std::string why(const std::string& layer, const std::function<void(const fs::path&)>& check = {},
                       UnpackOptions options = {}, const std::string& diff_id = "") {
  const Temporary temporary;
  fs::create_directory(temporary / "outside");
  write_file(temporary / "outside/file", "as it was");
  write_file(temporary / "evil.layer", layer);
  const std::string before = listing(temporary.path());
  std::string error;
  try {
    unpack_layer(temporary / "evil.layer", diff_id, temporary / "root", options);
    if (check) check(temporary / "root");
    remove_tree(temporary / "root");
  } catch (const Error& caught) {
    error = caught.what();
    CHECK(error.starts_with(diff_id.empty() ? "layer evil.layer: " : "layer " + diff_id + ": "));
    CHECK(error.find('\n') == std::string::npos);
    error = error.substr(error.find(": ", diff_id.empty() ? 0 : 14) + 2);
  }
  CHECK(listing(temporary.path()) == before);
  CHECK_FALSE(fs::exists("/evil"));
  return error;
}

inline std::string text_of(const fs::path& file) { return read_file(file); }

// If the user is not root, enters a user namespace that maps only this user, as root, because the files in layers
// belong to root. Returns whether the user was root.
inline bool begin_as_root() {
  const uid_t uid = ::getuid();
  const gid_t gid = ::getgid();
  if (uid == 0) return true;
  if (::unshare(CLONE_NEWUSER) != 0) return false;
  const std::pair<const char*, std::string> lines[] = {
      {"setgroups", "deny"}, {"uid_map", fmt::format("0 {} 1", uid)}, {"gid_map", fmt::format("0 {} 1", gid)}};
  for (const auto& [file, line] : lines)
    if (std::FILE* stream = std::fopen(fmt::format("/proc/self/{}", file).c_str(), "w")) {
      std::fputs(line.c_str(), stream);
      std::fclose(stream);
    }
  return false;
}
inline const bool kWasRoot = begin_as_root();
inline bool is_root() { return kWasRoot; }

}  // namespace image_unpack_support
