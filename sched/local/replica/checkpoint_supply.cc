#include "local/replica/checkpoint_supply.h"

#include <algorithm>
#include <utility>

#include "adaptdl/error.h"

namespace adaptdl::sched {

namespace fs = std::filesystem;
using nlohmann::json;

void CheckpointSupply::begin(std::optional<fs::path> newest) {
  newest_ = std::move(newest);
  for (auto& [name, device] : devices_) {
    device.stage = Stage::kNone;
    device.sender.reset();
    device.path.clear();
    device.failure.clear();
    device.starts.clear();
  }
}

void CheckpointSupply::start(const std::string& device, const std::string& address, json start, bool joins) {
  Device& entry = devices_[device];
  entry.address = address;
  if (!joins && newest_ && entry.stage == Stage::kNone) supply(device);
  entry.starts.push_back(std::move(start));
  send_starts();
}

// Begins to give the device the newest checkpoint. Over the network, each node receives it only once.
void CheckpointSupply::supply(const std::string& name) {
  Device& device = devices_.at(name);
  for (const auto& [other_name, other] : devices_) {
    if (other_name == name || other.address != device.address) continue;
    if (other.stage == Stage::kReceives) {
      device.stage = Stage::kWaits;
      return;
    }
    if (!other.path.empty() && device.stage != Stage::kLinks) {
      device.stage = Stage::kLinks;
      device.copy = ++copies_;
      return send(name, {{"part", "link"}, {"path", other.path}, {"size", newest_size_}, {"copy", device.copy}});
    }
  }
  device.copy = ++copies_;
  device.sender.emplace(*newest_, device.copy);
  device.stage = Stage::kReceives;
  newest_size_ = device.sender->size();
  send_pieces(name);
}

void CheckpointSupply::take(const std::string& name, const json& answer) {
  const auto found = devices_.find(name);
  if (found == devices_.end()) return;
  Device& device = found->second;
  if (device.sender) {
    device.sender->take(answer);
    if (!device.sender->done()) return send_pieces(name);
    end(name, answer.value("path", ""), device.sender->failure());
  } else if (device.stage == Stage::kLinks && answer.at("copy") == device.copy) {
    // A device that cannot share the files, for example because they were deleted, gets its own.
    if (answer.at("part") == "failed") return supply_again(name);
    end(name, answer.at("path").get<std::string>(), "");
  }
}

void CheckpointSupply::end(const std::string& name, std::string path, std::string failure) {
  Device& device = devices_.at(name);
  device.stage = Stage::kDone;
  device.sender.reset();
  device.path = std::move(path);
  device.failure = std::move(failure);
  supply_waiting(device.address);
  send_starts();
}

// Supplies the devices that waited for another device of their node.
void CheckpointSupply::supply_waiting(const std::string& address) {
  for (const auto& [name, device] : devices_) {
    if (device.stage == Stage::kWaits && device.address == address) supply_again(name);
  }
}

void CheckpointSupply::supply_again(const std::string& name) {
  try {
    supply(name);
  } catch (const Error& error) {
    end(name, "", error.what());
  }
}

bool CheckpointSupply::drop_start(const std::string& device, int number) {
  const auto found = devices_.find(device);
  return found != devices_.end() &&
         std::erase_if(found->second.starts, [number](const json& start) { return start.at("number") == number; }) > 0;
}

bool CheckpointSupply::is_queued(const std::string& device, int number) const {
  const auto found = devices_.find(device);
  return found != devices_.end() && std::ranges::any_of(found->second.starts, [number](const json& start) {
           return start.at("number") == number;
         });
}

void CheckpointSupply::send(const std::string& device, json message) const {
  message["do"] = "checkpoint";
  send_(device, message);
}

void CheckpointSupply::send_pieces(const std::string& device) {
  Device& entry = devices_.at(device);
  try {
    while (auto message = entry.sender->next()) send(device, std::move(*message));
  } catch (const Error& error) {
    send(device, {{"part", "abort"}, {"copy", entry.copy}});
    end(device, "", error.what());
  }
}

void CheckpointSupply::send_starts() {
  const auto is_supplied = [](const auto& each) {
    return each.second.stage == Stage::kNone || each.second.stage == Stage::kDone;
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

void CheckpointSupply::lost(const std::string& device) {
  const auto found = devices_.find(device);
  if (found == devices_.end()) return;
  const std::string address = found->second.address;
  devices_.erase(found);
  supply_waiting(address);
  send_starts();
}

}  // namespace adaptdl::sched
