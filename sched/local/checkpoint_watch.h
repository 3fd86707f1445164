// CheckpointWatch determines whether a run wrote a checkpoint, and which one to continue from.
//
// A directory may hold checkpoints of adaptdl's runtime, which show whether they are complete, or directories of the
// same names that another runtime wrote (AdaptDL's Python package names them by the number of restarts). For the
// latter, a committed name is the only information.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace adaptdl::sched {

// What a launcher needs to know about a checkpoint.
struct CheckpointNote {
  std::filesystem::path path;
  std::optional<std::uint64_t> number;  // none: known only from a replica's report
  std::optional<double> epoch;          // as the job recorded it
  bool foreign = false;                 // written by another runtime
};

class CheckpointWatch {
 public:
  // `directory` contains the checkpoints; none: nothing is saved.
  explicit CheckpointWatch(std::optional<std::filesystem::path> directory) : directory_(std::move(directory)) {}

  // From now on, only checkpoints that are saved later are new.
  void mark();
  // Records that a replica reported this checkpoint as committed.
  void reported(const std::filesystem::path& path) { reported_ = path; }

  // Returns the newest usable checkpoint in the directory since mark(). If the directory cannot be seen from here,
  // returns the one that a replica reported. Returns none if there is none.
  std::optional<CheckpointNote> newest_since_mark() const;
  // Returns the newest usable checkpoint in the directory.
  std::optional<CheckpointNote> newest() const;

  // Returns the ADAPTDL_NUM_RESTARTS to begin with. AdaptDL's Python package names a checkpoint by it and cannot write
  // the same one twice, so in a directory with its checkpoints this is one more than the highest; otherwise it is 0.
  int first_restart() const;

 private:
  std::optional<std::filesystem::path> directory_;
  std::optional<std::uint64_t> highest_at_mark_;
  std::optional<std::filesystem::path> reported_;
};

}  // namespace adaptdl::sched
