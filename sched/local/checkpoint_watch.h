// Whether a run wrote a checkpoint, and which is the one to go on from.
//
// A directory may hold the checkpoints of adaptdl's runtime, which tell whether they are whole, or directories of the
// same names that another runtime wrote (AdaptDL's Python package names them by the number of restarts); of those, a
// committed name is all there is to know.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace adaptdl::sched {

// A checkpoint as far as a launcher needs to know it.
struct CheckpointNote {
  std::filesystem::path path;
  std::optional<std::uint64_t> number;  // none: known from a replica's word only
  std::optional<double> epoch;          // as the job noted it
  bool foreign = false;                 // written by another runtime
};

class CheckpointWatch {
 public:
  // `directory`: of checkpoints; none: nothing is saved.
  explicit CheckpointWatch(std::optional<std::filesystem::path> directory) : directory_(std::move(directory)) {}

  // From now on, only checkpoints that come after are new.
  void mark();
  // A replica said that it committed this one.
  void reported(const std::filesystem::path& path) { reported_ = path; }

  // The newest usable checkpoint since mark(), looked for in the directory; if the directory cannot be seen from here,
  // what a replica said. None if there is none.
  std::optional<CheckpointNote> newest_since_mark() const;
  // The newest usable checkpoint of all, in the directory.
  std::optional<CheckpointNote> newest() const;

  // The ADAPTDL_NUM_RESTARTS to begin with. AdaptDL's Python package names a checkpoint by it and cannot write one
  // twice, so where its checkpoints are, it is one more than the highest; otherwise 0.
  int first_restart() const;

 private:
  std::optional<std::filesystem::path> directory_;
  std::optional<std::uint64_t> highest_at_mark_;
  std::optional<std::filesystem::path> reported_;
};

}  // namespace adaptdl::sched
