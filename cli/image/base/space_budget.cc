#include "image/base/space_budget.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <limits>
#include <string>

#include "adaptdl/error.h"
#include "base/printable.h"

namespace adaptdl::image {

namespace fs = std::filesystem;

SpaceBudget::SpaceBudget(const fs::path& directory)
    : directory_(directory), max_bytes_(std::numeric_limits<std::uint64_t>::max()), max_files_(max_bytes_) {
  struct statvfs space {};
  if (::statvfs(directory.c_str(), &space) != 0) return;
  const auto share = [](std::uint64_t free) { return free / 100 * 95; };
  if (space.f_blocks != 0) max_bytes_ = share(std::uint64_t{space.f_bavail} * space.f_frsize);
  if (space.f_files != 0) max_files_ = share(space.f_favail);
}

void SpaceBudget::take(std::uint64_t bytes, std::uint64_t files) {
  const auto fail = [&](const std::string& what) {
    throw Error(fmt::format("no space left: the unpacked image needs more than 95% of the {} free in '{}'", what,
                            one_line(directory_.string(), 300)));
  };
  if ((bytes_ += bytes) > max_bytes_) fail(fmt::format("{} MiB", (max_bytes_ / 95 * 100) >> 20));
  if ((files_ += files) > max_files_) fail(fmt::format("{} inodes", max_files_ / 95 * 100));
}

}  // namespace adaptdl::image
