// The elastic part of a data loader, for those who write one of their own: AdaptiveDataLoader is built on it.
//
// A loop over data, as each replica runs it with the same number of steps:
//
//   auto context = helper.context();             // the loop begins; it ends when `context` is destroyed
//   if (helper.skipdone()) return;               // finished before a restart
//   helper.sync_local_bsz();
//   while (*helper.current_index() < size) {
//     helper.step_boundary();                    // here the job may checkpoint and exit
//     ... make a batch of current_local_bsz() samples from *helper.current_index() on, and train on it ...
//     helper.advance();
//   }
//
// Position: a helper remembers how many samples its loop has read, and which loop of the epoch it finished last, and
// saves both as the state "adaptdl-dataloader-EPOCH-COUNT", where EPOCH is "epochN" for one made in epoch N and
// "epochnone" for one made outside the epoch loop, and COUNT tells those apart by the order they are made in, which is
// the same on every replica and after every restart.
//
// Rules, each a UsageError when broken: loops run inside an epoch loop; one loop runs at a time; no loader is made
// while one runs.
//
// Threading: used by the training thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace adaptdl::torch {

class AdaptiveDataLoaderHelper {
 public:
  // `batch_size`: samples of a step over all replicas, >= 1. `name`: stands in the place of COUNT in the state's name;
  // empty: COUNT. Loads its state from the checkpoint, and installs the signal handlers of a graceful stop. Throws
  // UsageError on a batch size of 0 and while a loader loop is running.
  explicit AdaptiveDataLoaderHelper(std::size_t batch_size, const std::string& name = {});
  ~AdaptiveDataLoaderHelper();
  AdaptiveDataLoaderHelper(const AdaptiveDataLoaderHelper&) = delete;
  AdaptiveDataLoaderHelper& operator=(const AdaptiveDataLoaderHelper&) = delete;

  // The name of its checkpoint state.
  const std::string& name() const noexcept;

  // A running loop. Its end counts the loop as finished, unless an exception caused it: then the loop can go on where
  // it was.
  class Context {
   public:
    Context(Context&& other) noexcept;
    Context& operator=(Context&&) = delete;
    ~Context();

   private:
    friend class AdaptiveDataLoaderHelper;
    explicit Context(AdaptiveDataLoaderHelper& helper);
    AdaptiveDataLoaderHelper* helper_;
    int exceptions_;  // in flight when the loop began
  };

  // Begins a loop. Throws UsageError outside an epoch loop and while another loader loop is running.
  [[nodiscard]] Context context();

  // Whether this loop was finished before a restart, so that it must end without a step. To be called right after
  // context().
  bool skipdone();

  // Throws Error, which names the loader, if the loop is in the middle of a data set of another size than `samples`, or
  // past its end. Remembers the size for the next restart. To be called after skipdone().
  void check_dataset(std::size_t samples);

  // Sets current_local_bsz for the number of replicas, and returns it.
  std::size_t sync_local_bsz();

  // The step boundary, to be called before every step, equally often on all replicas. Here all replicas decide
  // together, on what each submitted at the boundary before: to go on, to save a periodic checkpoint, or, after a
  // signal to any of them, to save a checkpoint and exit with code 143. What is to be saved must be consistent here.
  // `steps_left`: of this pass, this one included, for the progress report. Throws Error, which says to call
  // init_process_group, without it; CollectiveError if a replica died; CheckpointError if the checkpoint before an exit
  // cannot be saved. A periodic one that fails is a warning.
  void step_boundary(std::optional<std::size_t> steps_left = {});

  // Counts the samples of a step: current_index grows by what all replicas read, to the end of the pass at most.
  void advance();

  // Counts a pass over `samples` as done: rounds current_index up to a multiple.
  void finish_pass(std::size_t samples);

  // Samples that all replicas have read in this loop; none while it is not running. Setting it then does nothing.
  std::optional<std::size_t> current_index() const noexcept;
  void set_current_index(std::size_t index) noexcept;

  // For the loader's own use: saved and restored, and 0 when a loop begins anew.
  std::size_t end_index() const noexcept;
  void set_end_index(std::size_t index) noexcept;

  // Samples of a step over all replicas, as asked for.
  std::size_t batch_size() const noexcept { return batch_size_; }
  // Samples of a batch on each replica: batch_size divided by the replicas, rounded up. 0 before the first loop.
  std::size_t current_local_bsz() const noexcept { return current_local_bsz_; }
  // Samples between two optimizer steps, over all replicas: batch_size, rounded up to a multiple of the replicas.
  std::size_t current_batch_size() const noexcept;
  // How many batches are accumulated before the one with which the optimizer steps.
  int accumulation_steps() const noexcept { return accumulation_steps_; }
  // Whether the gradients of the current batch are accumulated only, or the optimizer steps with it.
  bool is_accum_step() const noexcept { return accumulated_ < accumulation_steps_; }
  bool is_optim_step() const noexcept { return !is_accum_step(); }

  // Makes this loader the one for training, if there is none yet.
  void train() noexcept;
  bool training() const noexcept;

 private:
  class LoopState;
  void begin();
  void finish() noexcept;
  void abandon() noexcept;

  std::size_t batch_size_;
  std::size_t replicas_ = 1;
  std::size_t current_local_bsz_ = 0;
  int accumulation_steps_ = 0;
  int accumulated_ = 0;
  bool stepped_ = false;  // a batch of this loop was handed out
  bool skipped_ = false;
  std::shared_ptr<LoopState> state_;  // shared with the epoch that it was made in
};

// The loader whose loop is running; null while none is.
AdaptiveDataLoaderHelper* current_dataloader() noexcept;

}  // namespace adaptdl::torch
