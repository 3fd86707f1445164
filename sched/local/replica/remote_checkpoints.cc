#include "local/replica/remote_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "adaptdl/checkpoint.h"
#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "local/base/checkpoint_watch.h"

namespace adaptdl::sched {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::optional<fs::path> find_newest(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::exists(directory, ignored)) return std::nullopt;
  if (const auto newest = CheckpointWatch(directory).newest(); newest && newest->foreign) return newest->path;
  if (const auto whole = checkpoint::newest_whole(directory)) return whole->path;
  if (checkpoint::list(directory).empty()) return std::nullopt;
  throw checkpoint::CheckpointError(fmt::format(
      "no intact checkpoint in {}; restore one from a backup, or, to start from the beginning, choose another "
      "directory",
      directory.string()));
}

}  // namespace

RemoteCheckpoints::RemoteCheckpoints(const LaunchPlan& plan, LaunchObserver& observer, Send send, Refuse refuse)
    : directory_(plan.checkpoints.value()),
      keep_(env::checkpoint_keep()),
      observer_(observer),
      send_(std::move(send)),
      refuse_(std::move(refuse)) {}

void RemoteCheckpoints::begin() {
  newest_ = find_newest(directory_);
  for (auto& [name, device] : devices_) {
    device.sender.reset();
    device.has_newest = false;
    device.failure.clear();
    device.starts.clear();
  }
}

void RemoteCheckpoints::start(const std::string& device, json start, bool joins) {
  Device& entry = devices_[device];
  entry.superseded = false;
  if (!joins && newest_ && !std::exchange(entry.has_newest, true)) {
    entry.sender.emplace(*newest_, ++copies_);
    send_pieces(device);
  }
  entry.starts.push_back(std::move(start));
  send_starts();
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
  if (part == "received" || part == "stored" || part == "failed") {
    if (!entry.sender) return;
    entry.sender->take(message);
    if (!entry.sender->done()) return send_pieces(device);
    entry.failure = entry.sender->failure();
    entry.sender.reset();
    return send_starts();
  }
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
  devices_.erase(device);
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
    entry.failure = error.what();
    entry.sender.reset();
    send_starts();
  }
}

void RemoteCheckpoints::send_starts() {
  if (std::ranges::any_of(devices_, [](const auto& each) { return each.second.sender.has_value(); })) return;
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
