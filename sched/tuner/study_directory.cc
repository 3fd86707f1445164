#include "tuner/study_directory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "adaptdl/error.h"
#include "base/private_files.h"
#include "local/base/directory_lock.h"
#include "local/record/run_directory.h"

namespace adaptdl::sched::tune {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw Error(fmt::format("cannot use '{}': {}", path.string(), why));
}

}  // namespace

StudyDirectory::StudyDirectory(const std::string& name) : name_(name), path_(studies_directory() / name) {}

bool StudyDirectory::exists() const {
  std::error_code ignored;
  return fs::exists(path_ / "journal.log", ignored);
}

fs::path StudyDirectory::journal() const {
  std::error_code error;
  const fs::path resolved = fs::canonical(path_ / "journal.log", error);
  return error ? path_ / "journal.log" : resolved;
}

void StudyDirectory::create() {
  if (const auto error = create_private_directories(path_)) fail(path_, error.message());
}

void StudyDirectory::place_journal(const std::optional<fs::path>& journal) {
  std::error_code error;
  fs::remove(path_ / "journal.log", error);
  if (!error && journal) fs::create_symlink(fs::absolute(*journal), path_ / "journal.log", error);
  if (error) fail(path_ / "journal.log", error.message());
}

void StudyDirectory::remove() const {
  std::error_code error;
  fs::remove_all(path_, error);
  if (error) throw Error(fmt::format("cannot remove directory '{}': {}", path_.string(), error.message()));
}

void StudyDirectory::lock() {
  Fd lock;
  switch (lock_directory(path_, lock)) {
    case Locking::kLocked:
      break;
    case Locking::kHeld:
      throw UsageError(fmt::format("study '{}' is in use by another process", name_));
    case Locking::kVanished:
      throw UsageError(fmt::format("study '{}' was removed by another process; try again", name_));
    case Locking::kFailed:
      fail(path_ / "lock", std::strerror(errno));
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::write(lock.get(), pid.data(), pid.size()) != static_cast<ssize_t>(pid.size()))
    fail(path_ / "lock", std::strerror(errno));
  lock_ = std::move(lock);
}

std::optional<pid_t> StudyDirectory::searcher() const {
  if (!is_locked(path_)) return {};
  std::ifstream file(path_ / "lock");
  pid_t pid = 0;
  return file >> pid && pid > 0 ? std::optional(pid) : std::nullopt;
}

std::vector<std::string> list_studies() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(studies_directory(), ignored))
    if (StudyDirectory(entry.path().filename()).exists()) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

}  // namespace adaptdl::sched::tune
