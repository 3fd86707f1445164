// NodeCheckpoints is the replica server's end of RemoteCheckpoints: in a directory of its own, it stores the checkpoint
// from which replicas start, and it sends each checkpoint that they save to the RemoteHost.
//
// Threading: not thread-safe.
#pragma once

#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "local/base/line_channel.h"
#include "local/replica/checkpoint_copy.h"

namespace adaptdl::sched {

class NodeCheckpoints {
 public:
  // The directory must not exist. It is created, and is removed at the end. `channel` must outlive this object. Throws
  // CheckpointError if the directory cannot be created.
  NodeCheckpoints(LineChannel& channel, std::filesystem::path directory);
  ~NodeCheckpoints();
  NodeCheckpoints(const NodeCheckpoints&) = delete;
  NodeCheckpoints& operator=(const NodeCheckpoints&) = delete;

  const std::filesystem::path& directory() const noexcept { return directory_; }

  // Removes all checkpoints. Must be called before each start of all replicas, while no replica is running.
  void begin();
  // Processes a message about a checkpoint from the RemoteHost.
  void take(const nlohmann::json& message);
  // Sends a checkpoint that a replica has saved, and then `report`, the message about it. If a newer checkpoint is
  // saved before the sending begins, only the newer one is sent, followed by both reports. All replicas report a
  // checkpoint; reports about checkpoints in other directories are dropped, because another server sends these
  // checkpoints.
  void saved(const std::filesystem::path& checkpoint, nlohmann::json report);
  // Sends the newest checkpoint in the directory if no replica has reported it.
  void send_unreported();
  // Returns whether a checkpoint has not been sent completely.
  bool sending() const noexcept { return !saved_.empty(); }
  // Gives up the checkpoints that have not been sent completely.
  void abandon();

 private:
  struct Saved {
    std::filesystem::path path;
    std::vector<nlohmann::json> reports;
  };

  void step();
  void send(nlohmann::json message);
  void finish(bool stored);

  LineChannel& channel_;
  const std::filesystem::path directory_;
  CheckpointReceiver receiver_;
  std::deque<Saved> saved_;  // the first one is being sent, and the second one is the newest
  std::optional<CheckpointSender> sender_;
  int copies_ = 0;
  std::filesystem::path newest_;  // the last checkpoint that was received or saved
};

}  // namespace adaptdl::sched
