#include "local/replica/remote_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "checkpoint/newest.h"
#include "local/base/checkpoint_watch.h"

namespace adaptdl::sched {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Returns the checkpoint from which the replicas continue, and reports newer ones that are damaged.
std::optional<fs::path> choose_checkpoint(const fs::path& directory, LaunchObserver& observer) {
  if (const auto newest = CheckpointWatch(directory).newest(); newest && newest->foreign) return newest->path;
  const checkpoint::Newest newest = checkpoint::find_newest(directory, true);
  checkpoint::require_intact(directory, newest);
  if (!newest.snapshot) return std::nullopt;
  const fs::path& path = newest.snapshot->path();
  for (const std::string& reason : newest.passed_over)
    observer.notice(fmt::format("warning: {}; using '{}' instead", reason, path.string()));
  return path;
}

// Returns how many checkpoints the run keeps, by its settings or the environment. The replicas reject an invalid
// number.
int checkpoints_to_keep(const LaunchPlan& plan) {
  const auto is_keep = [](const auto& setting) { return setting.first == "ADAPTDL_CHECKPOINT_KEEP"; };
  const auto last = std::find_if(plan.settings.rbegin(), plan.settings.rend(), is_keep);
  if (last == plan.settings.rend()) return env::checkpoint_keep();
  int keep = 0;
  std::from_chars(last->second.data(), last->second.data() + last->second.size(), keep);
  return std::max(keep, 1);
}

}  // namespace

RemoteCheckpoints::RemoteCheckpoints(const LaunchPlan& plan, LaunchObserver& observer, CheckpointSupply::Send send,
                                     CheckpointSupply::Refuse refuse)
    : directory_(plan.checkpoints.value()),
      keep_(checkpoints_to_keep(plan)),
      observer_(observer),
      send_(send),
      supply_(std::move(send), std::move(refuse)) {}

void RemoteCheckpoints::begin() {
  has_last_ = true;
  supply_.begin(choose_checkpoint(directory_, observer_));
}

void RemoteCheckpoints::start(const std::string& device, const std::string& address, json start, bool joins) {
  savers_[device].superseded = false;
  supply_.start(device, address, std::move(start), joins);
}

void RemoteCheckpoints::take(const std::string& device, const json& message) {
  const auto part = message.at("part").get<std::string>();
  if (part == "received" || part == "stored" || part == "failed") return supply_.take(device, message);
  Saver& saver = savers_[device];
  if (part == "begin" && !saver.superseded) {
    for (auto& [name, other] : savers_) other.superseded = name != device;
  }
  json answer = receive(saver, message);
  std::string why = answer.is_object() ? answer.value("why", "") : "";
  if (part == "abort") why = message.value("why", "");
  if (!why.empty()) {
    observer_.notice(fmt::format("warning: cannot store a checkpoint: {}", why));
    if (!saver.superseded) has_last_ = false;
  }
  if (answer.is_null()) return;
  if (answer.at("part") == "stored" && !saver.superseded) has_last_ = true;
  answer["do"] = "checkpoint";
  send_(device, answer);
}

// Returns the answer to a message about a checkpoint that the device saved; null if there is none. If a replica on
// another device has become the first one and has saved a checkpoint, a checkpoint that still arrives from this device
// is older, and is dropped.
json RemoteCheckpoints::receive(Saver& saver, const json& message) {
  if (!saver.superseded) {
    if (!saver.receiver) saver.receiver.emplace(directory_, keep_);
    return saver.receiver->take(message);
  }
  if (saver.receiver) saver.receiver->take({{"part", "abort"}});
  const auto part = message.at("part").get<std::string>();
  if (part != "bytes" && part != "end") return nullptr;
  return {{"part", part == "end" ? "stored" : "received"}, {"copy", message.at("copy")}};
}

void RemoteCheckpoints::lost(const std::string& device) {
  savers_.erase(device);
  supply_.lost(device);
}

std::filesystem::path RemoteCheckpoints::saved(const std::string& device) const {
  const auto found = savers_.find(device);
  return found == savers_.end() || !found->second.receiver ? std::filesystem::path() : found->second.receiver->stored();
}

}  // namespace adaptdl::sched
