// RemoteCheckpoints keeps a run's checkpoints on this machine if the nodes do not share the checkpoint directory: it
// copies the newest checkpoint to each node before the replicas start, and each new checkpoint from the device that
// saved it to this machine.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "local/base/launch_observer.h"
#include "local/base/launch_plan.h"
#include "local/replica/checkpoint_copy.h"
#include "local/replica/checkpoint_supply.h"

namespace adaptdl::sched {

class RemoteCheckpoints {
 public:
  // The plan must have a checkpoint directory. The observer must outlive this object.
  RemoteCheckpoints(const LaunchPlan& plan, LaunchObserver& observer, CheckpointSupply::Send send,
                    CheckpointSupply::Refuse refuse);

  // Chooses the checkpoint from which the replicas continue: the newest one whose bytes are all correct, as replicas
  // that share the directory do. Must be called before each start of all replicas. Throws CheckpointError if there are
  // checkpoints, but none is intact, or if one cannot be read for a reason other than damage.
  void begin();
  // See CheckpointSupply.
  void start(const std::string& device, const std::string& address, nlohmann::json start, bool joins);
  bool drop_start(const std::string& device, int number) { return supply_.drop_start(device, number); }
  bool is_queued(const std::string& device, int number) const { return supply_.is_queued(device, number); }

  // Processes a message about a checkpoint from the device's server.
  void take(const std::string& device, const nlohmann::json& message);
  void lost(const std::string& device);
  // Returns the path, on this machine, of the checkpoint that the device saved last; empty if there is none.
  std::filesystem::path saved(const std::string& device) const;
  // Returns false if the last checkpoint that the replicas saved since begin() could not be stored.
  bool has_last() const noexcept { return has_last_; }

 private:
  // A device whose replicas may save checkpoints.
  struct Saver {
    std::optional<CheckpointReceiver> receiver;
    bool superseded = false;  // another device has saved a checkpoint since; this device's checkpoints are older
  };

  nlohmann::json receive(Saver& saver, const nlohmann::json& message);

  const std::filesystem::path directory_;
  const int keep_;
  LaunchObserver& observer_;
  const CheckpointSupply::Send send_;
  CheckpointSupply supply_;
  std::map<std::string, Saver> savers_;
  bool has_last_ = true;
};

}  // namespace adaptdl::sched
