// The loop over epochs: the outermost loop of a training program.
//
//   for (int epoch : remaining_epochs_until(30)) {
//     for (auto& batch : train_loader) { ... }
//     for (auto& batch : valid_loader) { ... }
//   }
//
// A job may be interrupted at any batch of any loader loop, and goes on in a new process that runs the program from the
// start. There the loop begins at the epoch that was interrupted, finished loader loops in it are skipped, and the
// interrupted one goes on where it was. So the code between main and that loop runs twice: it must be idempotent there
// (docs/elasticity.md).
//
// An epoch is finished when its body ends, or is left by `break` or `return`. It is not when an exception leaves it: a
// program that catches it and loops again gets the same epoch again.
//
// When the body of the last epoch has ended, a checkpoint is saved, in a collective call. A loop left by `break` or
// `return` saves none: call checkpoint::save_all_states() after it.
//
// State: ".adaptdl-epoch", made and loaded from the checkpoint when one of these functions is first called.
// Errors: a checkpoint without that state throws checkpoint::CheckpointError, as does a result that cannot be saved.
// Threading: to be called by the training thread only.
#pragma once

#include <iterator>
#include <optional>

namespace adaptdl {

// What remaining_epochs_until returns; of use in a range-for.
class EpochRange {
 public:
  // The loop: its value is the epoch whose body is running.
  class Iterator {
   public:
    using value_type = int;
    using difference_type = std::ptrdiff_t;

    Iterator(Iterator&& other) noexcept;
    Iterator& operator=(Iterator&&) = delete;
    // Finishes the epoch if it is still open: the loop was left in its middle.
    ~Iterator();

    int operator*() const noexcept { return epoch_; }
    // Finishes this epoch and opens the next one if there is one left, or else saves a checkpoint.
    Iterator& operator++();
    bool operator==(std::default_sentinel_t) const noexcept { return !open_; }

   private:
    friend class EpochRange;
    explicit Iterator(int end);

    int end_;
    int epoch_ = 0;
    bool open_ = false;
    int exceptions_;  // in flight when the loop began
  };

  // Opens the first epoch that is left. Throws UsageError while another epoch loop is running.
  Iterator begin() const { return Iterator(end_); }
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  friend EpochRange remaining_epochs_until(int epoch);
  explicit EpochRange(int end) : end_(end) {}
  int end_;
};

// The epochs from finished_epochs() to `epoch`, exclusively: none if that many are finished. Throws UsageError if
// `epoch` is negative. Several such loops may follow one another: until 30, then until 60.
[[nodiscard]] EpochRange remaining_epochs_until(int epoch);

// The epoch whose loop body is running; none outside of the loop.
std::optional<int> current_epoch();

// How many epochs are finished, in this process and those before it. In a loop body it equals current_epoch().
int finished_epochs();

}  // namespace adaptdl
