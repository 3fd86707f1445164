#include "tune/journal/journal_lock.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "adaptdl/error.h"
#include "adaptdl/log.h"

namespace adaptdl::sched::tune {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kMinSleep{1}, kMaxSleep{100};
constexpr milliseconds kMaxReportAfter{1'000};

std::int64_t modified_ns(const struct stat& info) {
  return std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

std::int64_t modified_ns(const std::filesystem::path& file) {
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 ? modified_ns(info) : 0;
}

}  // namespace

JournalLock::JournalLock(const std::filesystem::path& file, std::string unique, milliseconds grace,
                         const Notice& notice)
    : file_(file), lock_(path_of(file)), unique_(std::move(unique)), grace_(grace) {
  if (!try_create()) wait(notice ? notice : Notice(log::warn));
  own_ = identity();
  since_ = Clock::now();
}

JournalLock::~JournalLock() {
  // After the grace time, another process may have taken over the lock.
  remove(Clock::now() - since_ < grace_ ? nullptr : &own_);
}

bool JournalLock::try_create() const {
  // The target is only the file name, because Optuna follows the link, and the target must resolve wherever the
  // directory is mounted.
  if (::symlink(file_.filename().c_str(), lock_.c_str()) == 0) return true;
  if (errno == EEXIST) return false;
  throw Error(fmt::format("cannot create the lock '{}': {}", lock_.string(), std::strerror(errno)));
}

void JournalLock::wait(const Notice& notice) {
  const auto report_after = std::min(kMaxReportAfter, grace_ / 2);
  auto last_change = Clock::now();
  bool reported = false;
  std::pair<Identity, std::int64_t> seen;
  for (milliseconds sleep = kMinSleep; !try_create(); sleep = std::min(sleep * 2, kMaxSleep)) {
    const auto now = Clock::now();
    const std::pair state(identity(), modified_ns(file_));
    if (seen != state) {
      seen = state;
      last_change = now;
    }
    if (!reported && now - last_change > report_after) {
      reported = true;
      notice(fmt::format("waiting for the lock '{}'; it will be taken over if it does not change for {:.3g}s",
                         lock_.string(), std::chrono::duration<double>(grace_).count()));
    }
    if (now - last_change > grace_) {
      notice(fmt::format("taking over the lock '{}', which has not changed for {:.3g}s", lock_.string(),
                         std::chrono::duration<double>(now - last_change).count()));
      remove(&state.first);
      seen = {};
      continue;
    }
    std::this_thread::sleep_for(sleep);
  }
}

// Identifies the link itself, not its target. Returns an empty identity if the link does not exist.
JournalLock::Identity JournalLock::identity() const {
  struct stat info {};
  if (::lstat(lock_.c_str(), &info) != 0) return {};
  return {info.st_ino, modified_ns(info)};
}

// Removes the lock if it is the expected one, or unconditionally if `expected` is null. If several processes try at the
// same time, rename(2) succeeds in only one of them.
bool JournalLock::remove(const Identity* expected) const {
  if (expected != nullptr && identity() != *expected) return false;
  const std::string renamed = fmt::format("{}{}.rename", lock_.string(), unique_);
  return ::rename(lock_.c_str(), renamed.c_str()) == 0 && ::unlink(renamed.c_str()) == 0;
}

}  // namespace adaptdl::sched::tune
