#include "local/replica/remote_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "local/base/checkpoint_watch.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;

}  // namespace

RemoteCheckpoints::RemoteCheckpoints(const LaunchPlan& plan, LaunchObserver& observer, Send send, Refuse refuse)
    : directory_(plan.checkpoints.value()),
      keep_(env::checkpoint_keep()),
      observer_(observer),
      send_(std::move(send)),
      refuse_(std::move(refuse)) {}

void RemoteCheckpoints::begin() {
  const auto newest = CheckpointWatch(directory_).newest();
  newest_ = newest ? std::optional(newest->path) : std::nullopt;
  for (auto& [name, device] : devices_) {
    device.sender.reset();
    device.has_newest = false;
    device.failure.clear();
    device.starts.clear();
  }
}

void RemoteCheckpoints::start(const std::string& device, json start, bool joins) {
  Device& entry = devices_[device];
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
  if (!entry.receiver) entry.receiver.emplace(directory_, keep_);
  json answer = entry.receiver->take(message);
  if (answer.is_null()) return;
  if (answer.at("part") == "failed")
    observer_.notice(fmt::format("warning: a checkpoint is lost: {}", answer.at("why").get<std::string>()));
  send(device, std::move(answer));
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
