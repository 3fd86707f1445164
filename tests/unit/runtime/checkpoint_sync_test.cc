// Tests what must be on disk before a checkpoint is renamed to its final name. A test cannot cut the power, so this one
// checks the order of the system calls.
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>

#include "checkpoint_support.h"

namespace checkpoint_sync_test {

using namespace checkpoint_test;

namespace {

struct Call {
  std::string name;
  fs::path path, target;
};

// Protects `calls`, since the thread pool makes calls too.
std::mutex calls_mutex;
std::vector<Call>* calls = nullptr;

void record(Call call) {
  const std::lock_guard lock(calls_mutex);
  if (calls) calls->push_back(std::move(call));
}

}  // namespace

// These functions replace those of the C library in this program.
extern "C" int fsync(int fd) {
  std::error_code ignored;
  record({"fsync", fs::read_symlink("/proc/self/fd/" + std::to_string(fd), ignored), {}});
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) noexcept {
  record({"rename", from, to});
  return static_cast<int>(::syscall(SYS_renameat2, from_fd, from, to_fd, to, flags));
}

TEST_CASE("a checkpoint's files and directory are synced before its rename, and the parent directory after it") {
  Directory directory;
  Number number("number", 1);
  MapState map("map");
  map.tensors["weight"] = {"U8", {3}, "abc"};
  std::vector<Call> seen;
  calls = &seen;
  const auto saved = ckpt::save_all_states();
  calls = nullptr;
  REQUIRE(saved);

  const auto renamed = std::find_if(seen.begin(), seen.end(), [&](const Call& call) { return call.target == *saved; });
  REQUIRE(renamed != seen.end());
  const auto synced = [](auto begin, auto end, const fs::path& path) {
    return std::any_of(begin, end, [&](const Call& call) { return call.name == "fsync" && call.path == path; });
  };
  int files = 0;
  for (const auto& entry : fs::directory_iterator(*saved)) {
    ++files;
    CAPTURE(entry.path().string());
    CHECK(synced(seen.begin(), renamed, renamed->path / entry.path().filename()));
  }
  CHECK(files >= 2);
  CHECK(synced(seen.begin(), renamed, renamed->path));
  CHECK(synced(renamed, seen.end(), directory.path()));
}

}  // namespace checkpoint_sync_test
