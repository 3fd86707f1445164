// CheckpointSupply gives the devices of a run the newest checkpoint before replicas start on them, if the nodes do not
// share the checkpoint directory. Each node receives one copy over the network; its devices share the files.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "local/replica/checkpoint_copy.h"

namespace adaptdl::sched {

class CheckpointSupply {
 public:
  using Send = std::function<void(const std::string& device, const nlohmann::json& message)>;
  // Receives the number of a replica that cannot be started on the device, and the reason.
  using Refuse = std::function<void(const std::string& device, int number, const std::string& why)>;

  CheckpointSupply(Send send, Refuse refuse) : send_(std::move(send)), refuse_(std::move(refuse)) {}

  // Must be called before each start of all replicas, with the checkpoint from which they continue; nullopt: there is
  // none.
  void begin(std::optional<std::filesystem::path> newest);
  // Sends the message `start`, which starts a replica on the device, once all devices that need the newest checkpoint
  // have it. The device needs the checkpoint unless the replica `joins` running replicas. `address` is the address of
  // the device's node. Throws Error if the checkpoint cannot be read.
  void start(const std::string& device, const std::string& address, nlohmann::json start, bool joins);
  // Discards the message that starts this replica if it has not been sent yet, and returns whether it was discarded.
  bool drop_start(const std::string& device, int number);
  // Returns whether the message that starts this replica has not been sent yet.
  bool is_queued(const std::string& device, int number) const;

  // Processes an answer from the device's server to the messages of a copy.
  void take(const std::string& device, const nlohmann::json& answer);
  void lost(const std::string& device);

 private:
  enum class Stage {
    kNone,      // does not need the checkpoint
    kWaits,     // until another device of its node has it
    kLinks,     // has been asked to share the files of another device of its node
    kReceives,  // from the device's `sender`
    kDone       // has it, or could not store it
  };
  struct Device {
    std::string address;
    Stage stage = Stage::kNone;
    int copy = 0;  // number of the copy, or of the request to share files
    std::optional<CheckpointSender> sender;
    std::string path;                   // of the checkpoint on the device's node, once it is there
    std::string failure;                // why the device could not store the checkpoint
    std::deque<nlohmann::json> starts;  // not sent yet
  };

  void send(const std::string& device, nlohmann::json message) const;
  void supply(const std::string& device);
  void supply_again(const std::string& device);
  void supply_waiting(const std::string& address);
  void send_pieces(const std::string& device);
  void end(const std::string& device, std::string path, std::string failure);
  void send_starts();

  const Send send_;
  const Refuse refuse_;
  std::optional<std::filesystem::path> newest_;  // at the last begin()
  std::uint64_t newest_size_ = 0;                // in bytes; set once the checkpoint has been opened
  std::map<std::string, Device> devices_;
  int copies_ = 0;
};

}  // namespace adaptdl::sched
