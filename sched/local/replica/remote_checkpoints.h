// RemoteCheckpoints keeps a run's checkpoints on this machine if the nodes do not share the checkpoint directory: the
// newest checkpoint is copied to each node before the replicas start, and each new one from the device that saved it.
// The devices of a node share the files of the copy.
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

#include "local/base/launch_observer.h"
#include "local/base/launch_plan.h"
#include "local/replica/checkpoint_copy.h"

namespace adaptdl::sched {

class RemoteCheckpoints {
 public:
  using Send = std::function<void(const std::string& device, const nlohmann::json& message)>;
  // Receives the number of a replica that cannot be started on the device, and the reason.
  using Refuse = std::function<void(const std::string& device, int number, const std::string& why)>;

  // The plan must have a checkpoint directory. The plan and the observer must outlive this object.
  RemoteCheckpoints(const LaunchPlan& plan, LaunchObserver& observer, Send send, Refuse refuse);

  // Chooses the checkpoint from which the replicas continue: the newest one whose bytes are all correct, as replicas do
  // that share the directory. Must be called before each start of all replicas. Throws CheckpointError if there are
  // checkpoints, but none is intact, or if one cannot be read for a reason other than damage.
  void begin();
  // Sends the message `start`, which starts a replica on the device. If the replica is not to join running replicas,
  // the message is sent once every device on which replicas are about to start has the newest checkpoint. `address` is
  // the address of the device's node. Throws Error if the checkpoint cannot be read.
  void start(const std::string& device, const std::string& address, nlohmann::json start, bool joins);
  // Discards the message that starts this replica if it has not been sent yet, and returns whether it was discarded.
  bool drop_start(const std::string& device, int number);

  // Returns whether the message that starts this replica has not been sent yet.
  bool is_queued(const std::string& device, int number) const;

  // Processes a message about a checkpoint from the device's server.
  void take(const std::string& device, const nlohmann::json& message);
  void lost(const std::string& device);
  // Returns the path, on this machine, of the checkpoint that the device saved last; empty if there is none.
  std::filesystem::path saved(const std::string& device) const;

 private:
  // How far a device is in getting the newest checkpoint.
  enum class Supply {
    kNone,      // does not need it
    kWaits,     // until another device of its node has it
    kLinks,     // has been asked to share the files of another device of its node
    kReceives,  // from the device's `sender`
    kDone       // has it, or could not store it
  };
  struct Device {
    std::string address;
    Supply supply = Supply::kNone;
    std::optional<CheckpointSender> sender;
    int link = 0;                       // number of the copy if the device shares files
    std::string path;                   // of the newest checkpoint on the device's node, once it is there
    std::string failure;                // why it could not store the newest checkpoint
    std::deque<nlohmann::json> starts;  // not sent yet
    std::optional<CheckpointReceiver> receiver;
    bool superseded = false;  // another device has saved a checkpoint since; this device's checkpoints are older
  };

  void send(const std::string& device, nlohmann::json message) const;
  void supply(const std::string& device);
  void send_pieces(const std::string& device);
  void take_answer(const std::string& device, const nlohmann::json& answer);
  void end_supply(const std::string& device, std::string path, std::string failure);
  void supply_waiting(const std::string& address);
  void supply_again(const std::string& device);
  void send_starts();
  nlohmann::json receive(Device& device, const nlohmann::json& message);

  const std::filesystem::path directory_;
  const int keep_;
  LaunchObserver& observer_;
  const Send send_;
  const Refuse refuse_;
  std::optional<std::filesystem::path> newest_;  // newest checkpoint at the last begin()
  std::uint64_t newest_size_ = 0;                // in bytes; set once the checkpoint has been opened
  std::map<std::string, Device> devices_;
  int copies_ = 0;
};

}  // namespace adaptdl::sched
