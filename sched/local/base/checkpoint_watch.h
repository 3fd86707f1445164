// CheckpointWatch determines whether a run wrote a checkpoint, and which one to continue from.
//
// A directory may contain checkpoints from adaptdl's runtime, which record whether they are complete, or checkpoints
// from another runtime with names of the same form (AdaptDL's Python package names them after the number of restarts).
// For the latter, only the name shows that the checkpoint was committed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace adaptdl::sched {

// What a launcher needs to know about a checkpoint.
struct CheckpointNote {
  std::filesystem::path path;
  std::optional<std::uint64_t> number;  // nullopt: known only from a replica's report
  std::optional<double> epoch;          // as the job recorded it
  bool foreign = false;                 // written by another runtime
};

class CheckpointWatch {
 public:
  // `directory` contains the checkpoints; nullopt if nothing is saved.
  explicit CheckpointWatch(std::optional<std::filesystem::path> directory) : directory_(std::move(directory)) {}

  // From now on, only checkpoints that are saved after this call count as new.
  void mark();
  // Records that a replica reported this checkpoint as committed.
  void reported(const std::filesystem::path& path) { reported_ = path; }

  // Returns the newest usable checkpoint that was saved since mark(). If the directory does not exist on this machine,
  // returns the checkpoint that a replica reported. Returns nullopt if there is no new checkpoint.
  std::optional<CheckpointNote> newest_since_mark() const;
  // Returns the newest usable checkpoint in the directory, or nullopt if there is none.
  std::optional<CheckpointNote> newest() const;

  // Returns the value of ADAPTDL_NUM_RESTARTS for the first start. AdaptDL's Python package names its checkpoints after
  // that number and cannot use the same name twice. If the directory contains such checkpoints, the result is therefore
  // one more than the highest number; otherwise it is 0.
  int first_restart() const;

 private:
  std::optional<std::filesystem::path> directory_;
  std::optional<std::uint64_t> highest_at_mark_;
  std::optional<std::filesystem::path> reported_;
};

}  // namespace adaptdl::sched
