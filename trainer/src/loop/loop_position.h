// The position of a data loader's loop: which loops of the epoch are finished, and what the running loop has read.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace adaptdl::internal {

class LoopPosition {
 public:
  // Enters the epoch. Drops the position if it belongs to another epoch.
  void enter(int epoch);
  int epoch() const noexcept { return epoch_; }

  // Loops are numbered within the epoch, across all loaders.
  bool is_finished(int loop) const noexcept { return loop <= finished_; }
  void finish(int loop) noexcept;

  // Begin and end a loop that is nested in another loader's loop: a whole pass from the beginning of the data.
  void begin_nested() noexcept;
  void end_nested() noexcept { place_ = outside_; }

  // The number of samples that all replicas together have read, and a number for the loader's own use.
  std::size_t index() const noexcept { return place_.index; }
  void set_index(std::size_t index) noexcept { place_.index = index; }
  std::size_t end_index() const noexcept { return place_.end_index; }
  void set_end_index(std::size_t index) noexcept { place_.end_index = index; }
  // Returns the size of the dataset, or 0 if it is not known.
  std::size_t dataset_size() const noexcept { return place_.dataset_size; }

  // Stores the size of the dataset. Throws Error, which names the loader, if the loop cannot resume in a dataset of
  // this size.
  void check_dataset(const std::string& loader, std::size_t samples);
  // Advances by `samples`, but not beyond the end of the pass.
  void advance(std::size_t samples) noexcept;
  // Ends a pass over `samples` samples.
  void finish_pass(std::size_t samples) noexcept;

  // Marks the beginning of a step, to which rewind() moves back.
  void begin_step() noexcept;
  void rewind() noexcept;

  // load() throws nlohmann::json::exception.
  nlohmann::json save() const;
  void load(const nlohmann::json& saved);

 private:
  struct Place {
    std::size_t index = 0;
    std::size_t end_index = 0;
    std::size_t dataset_size = 0;  // 0: unknown
  };

  int epoch_ = -1;                                   // the epoch to which the other members apply
  int finished_ = -1;                                // index of the last finished loop in the epoch; -1: none
  Place place_;                                      // position in the running or interrupted loop
  Place outside_;                                    // saves place_ while the loader's loop is nested in another loop
  std::size_t step_index_ = 0, step_end_index_ = 0;  // index and end_index where the step began
};

}  // namespace adaptdl::internal
