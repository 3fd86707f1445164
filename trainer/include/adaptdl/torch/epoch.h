// The loop over epochs, which is the outermost loop of a training program.
//
//   for (int epoch : remaining_epochs_until(30)) {
//     for (auto& batch : train_loader) { ... }
//     for (auto& batch : valid_loader) { ... }
//   }
//
// A job may be interrupted at any batch of any loader loop. It continues in a new process, which runs the program from
// the start. In the new process, the epoch loop begins at the interrupted epoch, the finished loader loops of that
// epoch are skipped, and the interrupted loop resumes where it stopped. The code from the start of main to that loop
// therefore runs again, and must be idempotent (docs/elasticity.md).
//
// An epoch is finished when its body ends or is left by `break` or `return`. It is not finished when an exception
// leaves the body: a program that catches the exception and starts the loop again repeats the same epoch.
//
// When the body of the last epoch ends, a checkpoint is saved in a collective call. A loop that is left by `break` or
// `return` does not save a checkpoint; call checkpoint::save_all_states() after it.
//
// State: ".adaptdl-epoch", created and loaded from the checkpoint when one of these functions is first called.
// Errors: checkpoint::CheckpointError if a checkpoint lacks that state, or if the last checkpoint cannot be saved.
// Threading: only the training thread may call these functions.
#pragma once

#include <iterator>
#include <optional>

namespace adaptdl {

// The result of remaining_epochs_until, for use in a range-based for loop.
class EpochRange {
 public:
  // Runs the loop. The iterator refers to the epoch whose body is running.
  class Iterator {
   public:
    using value_type = int;
    using difference_type = std::ptrdiff_t;

    Iterator(Iterator&& other) noexcept;
    Iterator& operator=(Iterator&&) = delete;
    // Finishes the epoch if the loop was left in the middle of it, unless it was left by an exception.
    ~Iterator();

    int operator*() const noexcept { return epoch_; }
    // Finishes this epoch, and then opens the next one or, after the last epoch, saves a checkpoint.
    Iterator& operator++();
    bool operator==(std::default_sentinel_t) const noexcept { return !open_; }

   private:
    friend class EpochRange;
    explicit Iterator(int end);

    int end_;
    int epoch_ = 0;
    bool open_ = false;
    int exceptions_;  // number of exceptions in flight when the loop began
  };

  // Opens the first epoch that is not finished. Throws UsageError while another epoch loop is running.
  Iterator begin() const { return Iterator(end_); }
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  friend EpochRange remaining_epochs_until(int epoch);
  explicit EpochRange(int end) : end_(end) {}
  int end_;
};

// Returns the epochs from finished_epochs() up to, but not including, `epoch`. The range is empty if `epoch` epochs are
// already finished. Several such loops may follow one another, for example one until epoch 30 and one until epoch 60.
// Throws UsageError if `epoch` is negative.
[[nodiscard]] EpochRange remaining_epochs_until(int epoch);

// Returns the epoch whose loop body is running, or nullopt outside the loop.
std::optional<int> current_epoch();

// Returns how many epochs are finished, including those before a restart. In a loop body it equals current_epoch().
int finished_epochs();

}  // namespace adaptdl
