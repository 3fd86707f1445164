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
    observer.notice(fmt::format("warning: {}: using {} instead", reason, path.string()));
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

RemoteCheckpoints::RemoteCheckpoints(const LaunchPlan& plan, LaunchObserver& observer, Send send, Refuse refuse)
    : directory_(plan.checkpoints.value()),
      keep_(checkpoints_to_keep(plan)),
      observer_(observer),
      send_(std::move(send)),
      refuse_(std::move(refuse)) {}

void RemoteCheckpoints::begin() {
  newest_ = choose_checkpoint(directory_, observer_);
  for (auto& [name, device] : devices_) {
    device.supply = Supply::kNone;
    device.sender.reset();
    device.path.clear();
    device.failure.clear();
    device.starts.clear();
  }
}

void RemoteCheckpoints::start(const std::string& device, const std::string& address, json start, bool joins) {
  Device& entry = devices_[device];
  entry.address = address;
  entry.superseded = false;
  if (!joins && newest_ && entry.supply == Supply::kNone) supply(device);
  entry.starts.push_back(std::move(start));
  send_starts();
}

// Begins to give the device the newest checkpoint. Over the network, each node receives it only once.
void RemoteCheckpoints::supply(const std::string& name) {
  Device& device = devices_.at(name);
  for (const auto& [other_name, other] : devices_) {
    if (other_name == name || other.address != device.address) continue;
    if (other.supply == Supply::kReceives) {
      device.supply = Supply::kWaits;
      return;
    }
    if (!other.path.empty() && device.supply != Supply::kLinks) {
      device.supply = Supply::kLinks;
      device.link = ++copies_;
      return send(name, {{"part", "link"}, {"path", other.path}, {"size", newest_size_}, {"copy", device.link}});
    }
  }
  device.sender.emplace(*newest_, ++copies_);
  device.supply = Supply::kReceives;
  newest_size_ = device.sender->size();
  send_pieces(name);
}

void RemoteCheckpoints::take_answer(const std::string& name, const json& answer) {
  Device& device = devices_.at(name);
  if (device.sender) {
    device.sender->take(answer);
    if (!device.sender->done()) return send_pieces(name);
    end_supply(name, answer.value("path", ""), device.sender->failure());
  } else if (device.supply == Supply::kLinks && answer.at("copy") == device.link) {
    // A device that cannot share the files, for example because they were deleted, gets its own.
    if (answer.at("part") == "failed") return supply_again(name);
    end_supply(name, answer.at("path").get<std::string>(), "");
  }
}

void RemoteCheckpoints::end_supply(const std::string& name, std::string path, std::string failure) {
  Device& device = devices_.at(name);
  device.supply = Supply::kDone;
  device.sender.reset();
  device.path = std::move(path);
  device.failure = std::move(failure);
  supply_waiting(device.address);
  send_starts();
}

// Supplies the devices that waited for another device of their node.
void RemoteCheckpoints::supply_waiting(const std::string& address) {
  for (const auto& [name, device] : devices_) {
    if (device.supply == Supply::kWaits && device.address == address) supply_again(name);
  }
}

void RemoteCheckpoints::supply_again(const std::string& name) {
  try {
    supply(name);
  } catch (const Error& error) {
    end_supply(name, "", error.what());
  }
}

bool RemoteCheckpoints::drop_start(const std::string& device, int number) {
  const auto found = devices_.find(device);
  return found != devices_.end() &&
         std::erase_if(found->second.starts, [number](const json& start) { return start.at("number") == number; }) > 0;
}

bool RemoteCheckpoints::is_queued(const std::string& device, int number) const {
  const auto found = devices_.find(device);
  return found != devices_.end() && std::ranges::any_of(found->second.starts, [number](const json& start) {
           return start.at("number") == number;
         });
}

void RemoteCheckpoints::take(const std::string& device, const json& message) {
  Device& entry = devices_[device];
  const auto part = message.at("part").get<std::string>();
  if (part == "received" || part == "stored" || part == "failed") return take_answer(device, message);
  if (part == "begin" && !entry.superseded) {
    for (auto& [name, other] : devices_) other.superseded = name != device;
  }
  json answer = receive(entry, message);
  std::string why = answer.is_object() ? answer.value("why", "") : "";
  if (part == "abort") why = message.value("why", "");
  if (!why.empty()) observer_.notice(fmt::format("warning: cannot store a checkpoint: {}", why));
  if (!answer.is_null()) send(device, std::move(answer));
}

// Returns the answer to a message about a checkpoint that the device saved; null if there is none. If a replica on
// another device has become the first one and has saved a checkpoint, a checkpoint that still arrives from this device
// is older, and is dropped.
json RemoteCheckpoints::receive(Device& device, const json& message) {
  if (!device.superseded) {
    if (!device.receiver) device.receiver.emplace(directory_, keep_);
    return device.receiver->take(message);
  }
  if (device.receiver) device.receiver->take({{"part", "abort"}});
  const auto part = message.at("part").get<std::string>();
  if (part != "bytes" && part != "end") return nullptr;
  return {{"part", part == "end" ? "stored" : "received"}, {"copy", message.at("copy")}};
}

void RemoteCheckpoints::lost(const std::string& device) {
  const auto found = devices_.find(device);
  if (found == devices_.end()) return;
  const std::string address = found->second.address;
  devices_.erase(found);
  supply_waiting(address);
  send_starts();
}

std::filesystem::path RemoteCheckpoints::saved(const std::string& device) const {
  const auto found = devices_.find(device);
  return found == devices_.end() || !found->second.receiver ? std::filesystem::path()
                                                            : found->second.receiver->stored();
}

void RemoteCheckpoints::send(const std::string& device, json message) const {
  message["do"] = "checkpoint";
  send_(device, message);
}

void RemoteCheckpoints::send_pieces(const std::string& device) {
  Device& entry = devices_.at(device);
  try {
    while (auto message = entry.sender->next()) send(device, std::move(*message));
  } catch (const Error& error) {
    send(device, {{"part", "abort"}, {"copy", copies_}});
    end_supply(device, "", error.what());
  }
}

void RemoteCheckpoints::send_starts() {
  const auto is_supplied = [](const auto& each) {
    return each.second.supply == Supply::kNone || each.second.supply == Supply::kDone;
  };
  if (!std::ranges::all_of(devices_, is_supplied)) return;
  for (auto& [name, device] : devices_) {
    for (const json& start : std::exchange(device.starts, {})) {
      if (device.failure.empty()) {
        send_(name, start);
      } else {
        refuse_(name, start.at("number").get<int>(), device.failure);
      }
    }
  }
}

}  // namespace adaptdl::sched
