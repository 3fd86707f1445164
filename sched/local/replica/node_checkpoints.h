// NodeCheckpoints is the replica server's end of RemoteCheckpoints: in a directory of its own, it stores the checkpoint
// from which replicas start, and it sends each checkpoint that they save to the RemoteHost.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "local/base/line_channel.h"
#include "local/replica/checkpoint_copy.h"

namespace adaptdl::sched {

class NodeCheckpoints {
 public:
  // Creates a directory in `parent`, which is removed at the end, and removes those that killed servers left there.
  // `channel` must outlive this object. Throws CheckpointError if the directory cannot be created.
  NodeCheckpoints(LineChannel& channel, const std::filesystem::path& parent);
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
  // Sends the newest checkpoint in the directory if it is newer than those that were received and reported.
  void send_unreported();
  // From now on, a checkpoint that is saved replaces one that is being sent. Called when the replicas are about to end.
  void send_only_newest() noexcept { only_newest_ = true; }
  // Returns whether a checkpoint has not been sent completely.
  bool sending() const noexcept { return !saved_.empty(); }

 private:
  NodeCheckpoints(LineChannel& channel, std::pair<std::filesystem::path, Fd> locked);

  struct Saved {
    std::filesystem::path path;
    std::vector<nlohmann::json> reports;
  };

  void step();
  void abandon();
  void send(nlohmann::json message);
  void abort(const std::string& why);
  void finish(bool stored);

  LineChannel& channel_;
  const std::filesystem::path directory_;
  Fd lock_;  // held while the directory is in use
  CheckpointReceiver receiver_;
  std::deque<Saved> saved_;  // the first one is being sent, and the second one is the newest
  std::optional<CheckpointSender> sender_;
  int copies_ = 0;
  std::optional<std::uint64_t> newest_;  // number of the last checkpoint that was received or reported
  bool only_newest_ = false;
};

}  // namespace adaptdl::sched
