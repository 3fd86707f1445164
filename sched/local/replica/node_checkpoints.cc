#include "local/replica/node_checkpoints.h"

#include <limits>
#include <system_error>
#include <utility>

#include "adaptdl/error.h"
#include "local/base/checkpoint_watch.h"

namespace adaptdl::sched {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kKeepAll = std::numeric_limits<int>::max();

}  // namespace

NodeCheckpoints::NodeCheckpoints(LineChannel& channel, fs::path directory)
    : channel_(channel), directory_(std::move(directory)), receiver_(directory_, kKeepAll) {
  checkpoint::make_directories(directory_);
}

NodeCheckpoints::~NodeCheckpoints() {
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

void NodeCheckpoints::begin() {
  abandon();
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
  checkpoint::make_directories(directory_);
  newest_.clear();
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
  newest_ = receiver_.stored();
  if (!answer.is_null()) send(std::move(answer));
}

void NodeCheckpoints::saved(const fs::path& checkpoint, json report) {
  if (checkpoint.parent_path() != directory_) return;
  newest_ = checkpoint;
  if (saved_.size() < 2) saved_.emplace_back();
  saved_.back().path = checkpoint;
  if (!report.is_null()) saved_.back().reports.push_back(std::move(report));
  step();
}

void NodeCheckpoints::send_unreported() {
  const auto newest = CheckpointWatch(directory_).newest();
  if (newest && newest->path != newest_) saved(newest->path, nullptr);
}

// Sends as much as the RemoteHost accepts.
void NodeCheckpoints::step() {
  while (!saved_.empty()) {
    try {
      if (!sender_) sender_.emplace(saved_.front().path, ++copies_);
      while (auto message = sender_->next()) send(std::move(*message));
      return;
    } catch (const Error&) {
      // The checkpoint was deleted because newer ones were saved.
      if (sender_) send({{"part", "abort"}, {"copy", copies_}});
      finish(false);
    }
  }
}

void NodeCheckpoints::abandon() {
  if (sender_) send({{"part", "abort"}, {"copy", copies_}});
  sender_.reset();
  saved_.clear();
}

void NodeCheckpoints::send(json message) {
  message["is"] = "checkpoint";
  channel_.send(message);
}

void NodeCheckpoints::finish(bool stored) {
  if (stored) {
    for (const json& report : saved_.front().reports) channel_.send(report);
  }
  sender_.reset();
  saved_.pop_front();
}

}  // namespace adaptdl::sched
