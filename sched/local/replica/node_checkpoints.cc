#include "local/replica/node_checkpoints.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "adaptdl/error.h"
#include "checkpoint/snapshot.h"
#include "local/base/checkpoint_watch.h"

namespace adaptdl::sched {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kPrefix = ".adaptdl-checkpoints-";
constexpr int kKeepAll = std::numeric_limits<int>::max();

// Locks the directory. Returns nullopt if it does not exist, or if another process holds the lock. On a file system
// without locks, the descriptor is invalid.
std::optional<Fd> lock_directory(const fs::path& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::nullopt;
    return Fd();
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || status.st_nlink == 0) return std::nullopt;
  return fd;
}

void remove_leftovers(const fs::path& parent) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    if (const auto lock = lock_directory(entry.path()); lock && *lock) fs::remove_all(entry.path(), ignored);
  }
}

// The servers on all nodes have the same working directory, and may have the same process id.
std::pair<fs::path, Fd> make_directory(const fs::path& parent) {
  remove_leftovers(parent);
  // Another server may mistake the directory for a leftover before it is locked; the next attempt creates a new one.
  constexpr int kTries = 10;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    fs::path path = parent / (std::string(kPrefix) + checkpoint::random_suffix());
    checkpoint::make_directories(path);
    if (auto lock = lock_directory(path)) return {std::move(path), std::move(*lock)};
  }
  throw Error(fmt::format("cannot create a directory in '{}': another process keeps deleting it", parent.string()));
}

std::optional<std::uint64_t> number_of(const fs::path& checkpoint) {
  return checkpoint::checkpoint_number(checkpoint.filename().string());
}

}  // namespace

NodeCheckpoints::NodeCheckpoints(LineChannel& channel, const fs::path& parent)
    : NodeCheckpoints(channel, make_directory(parent)) {}

NodeCheckpoints::NodeCheckpoints(LineChannel& channel, std::pair<fs::path, Fd> locked)
    : channel_(channel),
      directory_(std::move(locked.first)),
      lock_(std::move(locked.second)),
      receiver_(directory_, kKeepAll) {}

NodeCheckpoints::~NodeCheckpoints() {
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

void NodeCheckpoints::begin() {
  abandon();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory_, ignored)) fs::remove_all(entry.path(), ignored);
  newest_.reset();
  only_newest_ = false;
}

void NodeCheckpoints::take(const json& message) {
  const auto part = message.at("part").get<std::string>();
  if (part == "received" || part == "stored" || part == "failed") {
    if (!sender_) return;
    sender_->take(message);
    if (sender_->done()) finish(sender_->failure().empty());
    return step();
  }
  json answer = receiver_.take(message);
  if (part == "end" || part == "link") newest_ = number_of(receiver_.stored());
  if (!answer.is_null()) send(std::move(answer));
}

void NodeCheckpoints::saved(const fs::path& checkpoint, json report) {
  if (checkpoint.parent_path() != directory_) return;
  newest_ = number_of(checkpoint);
  if (only_newest_) {
    if (sender_) abort("");
    for (; saved_.size() > 1; saved_.pop_back())
      std::ranges::move(saved_.back().reports, std::back_inserter(saved_.front().reports));
  }
  if (saved_.empty() || (!only_newest_ && saved_.size() < 2)) saved_.emplace_back();
  saved_.back().path = checkpoint;
  if (!report.is_null()) saved_.back().reports.push_back(std::move(report));
  step();
}

void NodeCheckpoints::send_unreported() {
  const auto newest = CheckpointWatch(directory_).newest();
  if (newest && (!newest_ || newest->number > newest_)) saved(newest->path, nullptr);
}

// Sends as much as the RemoteHost accepts.
void NodeCheckpoints::step() {
  while (!saved_.empty()) {
    try {
      if (!sender_) sender_.emplace(saved_.front().path, ++copies_);
      while (auto message = sender_->next()) send(std::move(*message));
      return;
    } catch (const Error& error) {
      abort(error.what());
      finish(false);
    }
  }
}

// Gives up the checkpoints that have not been sent completely.
void NodeCheckpoints::abandon() {
  if (sender_) abort("");
  saved_.clear();
}

void NodeCheckpoints::send(json message) {
  message["is"] = "checkpoint";
  channel_.send(message);
}

void NodeCheckpoints::abort(const std::string& why) {
  send({{"part", "abort"}, {"copy", copies_}, {"why", why}});
  sender_.reset();
}

void NodeCheckpoints::finish(bool stored) {
  if (stored) {
    for (const json& report : saved_.front().reports) channel_.send(report);
  }
  sender_.reset();
  saved_.pop_front();
}

}  // namespace adaptdl::sched
