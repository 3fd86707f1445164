// The elastic part of a data loader, for programs that write their own. AdaptiveDataLoader is built on it.
//
// The following loop over data runs with the same number of batches on each replica:
//
//   class Pages : public AdaptiveDataLoaderMixin {                // provides autoscale_batch_size etc.
//    public:
//     explicit Pages(std::size_t batch_size) : AdaptiveDataLoaderMixin(batch_size) {}
//     void train(const std::function<void(const Batch&)>& step) {
//       auto& helper = this->helper();
//       auto context = helper.context();                           // the loop begins; it ends with `context`
//       if (helper.skipdone()) return;                             // finished before a restart
//       auto layout = lay_out(helper.sync_local_bsz());            // samples per batch on each replica
//       while (*helper.current_index() < size) {
//         auto profile = helper.profile(true);                     // here the job may checkpoint and exit
//         if (helper.batch_size_changed()) layout = lay_out(helper.sync_local_bsz());
//         step(layout.batch_at(*helper.current_index()));          // is_optim_step(): whether the optimizer steps
//         helper.advance();
//       }
//     }
//   };
//
// Position: a helper records how many samples its loop has read, and which loop of the epoch it finished last. It saves
// both as the state "adaptdl-dataloader-EPOCH-COUNT". EPOCH is "epochN" for a helper created in epoch N, and
// "epochnone" for one created outside the epoch loop. COUNT numbers the helpers with the same EPOCH in the order of
// their creation, which is the same on every replica and after every restart.
//
// Batch size: the batch size is fixed or, with autoscale_batch_size, chosen repeatedly for the best goodput while the
// loop is running. Rank 0 decides, and every replica applies the decision at the same boundary
// (docs/adaptive-training.md).
//
// Accumulation: a step may consist of several batches, whose gradients are summed. Decisions, checkpoints and stops
// happen only before the first batch of a step, so an incomplete step is never saved.
//
// Evaluation: another loader's loop may run inside the training loader's loop, to evaluate every N steps. The inner
// loop is always a whole pass from the beginning of its data. Until it has ended, the job does not stop, saves no
// checkpoint and does not change its replicas. The time of the enclosing batch is not recorded.
//
// Rules: loops run inside an epoch loop; a nested loop is for evaluation only; no loader is created while a loop is
// running. Violating a rule throws UsageError.
//
// Threading: only the training thread may use these classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "adaptdl/torch/local_bsz_bounds.h"

namespace adaptdl {

class SummaryWriter;

namespace internal {
class ElasticLoop;
}

class AdaptiveDataLoaderHelper {
 public:
  // `batch_size`: number of samples per step across all replicas, >= 1. `name`: replaces COUNT in the state's name
  // unless it is empty. Loads the state from the checkpoint, and installs the signal handlers for a graceful stop.
  // Throws UsageError for a batch size of 0, and while a loader loop is running.
  explicit AdaptiveDataLoaderHelper(std::size_t batch_size, const std::string& name = {});
  ~AdaptiveDataLoaderHelper();
  AdaptiveDataLoaderHelper(const AdaptiveDataLoaderHelper&) = delete;
  AdaptiveDataLoaderHelper& operator=(const AdaptiveDataLoaderHelper&) = delete;

  // Returns the name of the loader's checkpoint state.
  const std::string& name() const noexcept;

  // --- The loop ---

  // A running loop, which is finished when this object is destroyed. However, if the object is destroyed because of an
  // exception, the loop can be resumed at the first batch of the interrupted step.
  class Context {
   public:
    // Begins a loop, like context().
    explicit Context(AdaptiveDataLoaderHelper& helper);
    Context(Context&& other) noexcept;
    Context& operator=(Context&&) = delete;
    ~Context();

   private:
    AdaptiveDataLoaderHelper* helper_;
    int exceptions_;  // number of exceptions in flight when the loop began
  };

  // Begins a loop. Throws UsageError outside an epoch loop. Inside another loop, throws UsageError if the outer loop is
  // itself nested, or if this loader is the training loader.
  [[nodiscard]] Context context();

  // Returns whether this loop was finished before a restart, in which case it must end without running a step. Call it
  // right after context().
  bool skipdone();

  // Checks the size of the dataset, and stores it for the next restart. Throws Error, which names the loader, if the
  // loop resumes in the middle of a dataset whose size was different, or beyond the end of the dataset. Must be
  // called after skipdone().
  void check_dataset(std::size_t samples);

  // Sets current_local_bsz and accumulation_steps to the values chosen for this number of replicas, and returns
  // current_local_bsz. Must be called between two batches, at the same points on all replicas: when a loop begins, when
  // it starts to read its data again, and when batch_size_changed() returns true. It has no effect in the middle of an
  // accumulated step. Throws Error if init_process_group was not called.
  std::size_t sync_local_bsz();
  // Returns whether the batch size or the replicas (their number, or this replica's rank) changed at the last boundary.
  // If it returns true, the loop must call sync_local_bsz() and then divide the rest of its data into batches again. A
  // loop that does not do this continues with its current batch size.
  bool batch_size_changed() const noexcept;

  // Passes a step boundary. Must be called before every batch, the same number of times on all replicas. Before the
  // first batch of a step, the replicas decide together what to do, based on what each replica submitted at the
  // previous boundary of this kind: continue, save a periodic checkpoint or, if any of them received a signal, save a
  // checkpoint and exit with code 143 (without a checkpoint path: 128 plus the number of the signal). All checkpointed
  // state must be consistent at this point. Between the batches of one step, the function only measures the time.
  // `batches_left`: number of batches left in this loop, including the one that is about to begin. The optimizer
  // always steps with the last batch, even if fewer batches than usual were accumulated. Throws Error if
  // init_process_group was not called, CollectiveError if a replica died, and CheckpointError if the checkpoint before
  // an exit cannot be saved. If a periodic checkpoint fails, a warning is logged.
  void step_boundary(std::optional<std::size_t> batches_left = {});

  // Measures the time of a batch, which ends when this object is destroyed.
  class [[nodiscard]] Profile {
   public:
    // Measures the batch that the last boundary began.
    explicit Profile(AdaptiveDataLoaderHelper& helper);
    Profile(Profile&& other) noexcept;
    Profile& operator=(Profile&&) = delete;
    ~Profile();

   private:
    AdaptiveDataLoaderHelper* helper_;
    int exceptions_;
  };

  // Calls step_boundary(), then measures the time until the result is destroyed, which is the end of the batch. If
  // step_boundary() is called directly, the time is measured up to the next boundary. `commit`: whether to record the
  // time; pass false for an atypical batch, such as a short one. The first batch after a change of the batch size or
  // the replicas is never recorded, nor is any batch of a loader that is not training().
  Profile profile(bool commit, std::optional<std::size_t> batches_left = {});

  // Advances current_index by the number of samples that all replicas read in a batch, but not beyond the end of the
  // pass. If the step must be repeated, moves current_index back to where the step began instead.
  void advance();

  // Returns whether the step that has just ended must be repeated, because a replica was lost during the step. If so,
  // moves the position back to the beginning of the step. A loop that sets its position itself, without advance(), must
  // call this function first.
  bool redo_step();

  // Ends a pass over `samples` samples: rounds current_index up to a multiple of `samples`.
  void finish_pass(std::size_t samples);

  // Returns whether the epoch has made enough statistical progress: by the end of the n-th epoch, the total progress
  // must reach that of n passes over `samples` samples at the initial batch size. Always returns false unless
  // adaptive(). Must be called after each batch. If the loop reads more than a whole pass without any progress, throws
  // Error if the gradients were NaN or infinite, and otherwise UsageError, because the optimizer never steps.
  bool epoch_done(std::size_t samples);

  // Returns whether this loader's loop runs inside another loader's loop.
  bool nested() const noexcept;

  // The number of samples that all replicas together have read in this loop. While no loop of this loader is running,
  // the number is nullopt, and setting it has no effect.
  std::optional<std::size_t> current_index() const noexcept;
  void set_current_index(std::size_t index) noexcept;

  // A number for the loader's own use. It is part of the checkpoint, and is 0 when a loop starts from the beginning.
  std::size_t end_index() const noexcept;
  void set_end_index(std::size_t index) noexcept;

  // --- The batch size ---

  // Allows the batch size to be chosen for the best goodput: between batch_size and `max_batch_size` samples per step
  // across all replicas, within `bounds` on each replica. `gradient_accumulation`: whether a step may consist of
  // several batches. Several batches are used if a replica's share of the step exceeds bounds.max, or if a single
  // replica could not otherwise measure its gradient noise. If `max_batch_size` equals batch_size, the total stays
  // fixed on any number of replicas, and an epoch is a pass over the data. Makes this loader the training loader. Must
  // be called once, with the same arguments on all replicas, before the first loop.
  // Throws UsageError, which names the value, if max_batch_size is below batch_size, if a bound is 0, if the lower
  // bound is above the upper bound or batch_size, if a replica's share of batch_size exceeds the upper bound without
  // accumulation, or if another loader is already the training loader.
  void autoscale_batch_size(std::size_t max_batch_size, LocalBszBounds bounds = {}, bool gradient_accumulation = false);

  // Returns the number of samples per step across all replicas that was given to the constructor. If the batch size is
  // autoscaled, this is the initial batch size.
  std::size_t batch_size() const noexcept;
  // Returns the maximum given to autoscale_batch_size, or nullopt if that function was not called.
  std::optional<std::size_t> max_batch_size() const noexcept;
  // Returns whether the number of samples per step may grow beyond batch_size(). If so, an epoch ends once it has made
  // as much statistical progress as one with batch_size() samples per step.
  bool adaptive() const noexcept;
  // Return the values given to autoscale_batch_size.
  const LocalBszBounds& local_bsz_bounds() const noexcept;
  bool gradient_accumulation() const noexcept;

  // Returns the number of samples per batch on each replica in the current or last loop, which may have run before a
  // restart. The result is 0 before the first loop.
  std::size_t current_local_bsz() const noexcept;
  // Returns the number of samples per optimizer step: current_local_bsz x (accumulation_steps + 1) x replicas.
  std::size_t current_batch_size() const noexcept;
  // Returns how many batches are accumulated before the batch with which the optimizer steps.
  int accumulation_steps() const noexcept;
  // Return whether the current batch's gradients are only accumulated, and whether the optimizer steps with this batch,
  // respectively.
  bool is_accum_step() const noexcept;
  bool is_optim_step() const noexcept;
  // Returns whether this batch is known to be the last of the loop. Always false for a loop that ends after enough
  // statistical progress.
  bool is_last_batch() const noexcept;
  // Returns how many batches of the current step precede this one. If the result is 0, gradients accumulated earlier
  // belong to a step that was never finished, because a `break` or an exception ended its loop.
  int accumulated() const noexcept;

  // Makes this loader the training loader, if there is none yet. The batch sizes of the training loader are part of the
  // scheduling hints.
  void train();
  // Returns whether this loader is the training loader.
  bool training() const noexcept;

  // Writes the scalars Total_Batch_Size, Local_Batch_Size and Accumulation_Steps, with the prefix "`tag_prefix`/" if it
  // is given.
  void to_tensorboard(SummaryWriter& writer, std::int64_t global_step, const std::string& tag_prefix = "") const;

  // Returns the implementation, for the loaders of this library.
  internal::ElasticLoop& loop() noexcept { return *loop_; }

 private:
  std::unique_ptr<internal::ElasticLoop> loop_;
};

// The base class for your own loaders. It provides the same functions as AdaptiveDataLoader.
class AdaptiveDataLoaderMixin {
 public:
  // See AdaptiveDataLoaderHelper.
  void autoscale_batch_size(std::size_t max_batch_size, LocalBszBounds bounds = {},
                            bool gradient_accumulation = false) {
    helper_.autoscale_batch_size(max_batch_size, bounds, gradient_accumulation);
  }
  // Return the helper's value, or nullopt while the loader's loop is not running.
  std::optional<std::size_t> current_local_bsz() const noexcept;
  std::optional<std::size_t> current_batch_size() const noexcept;
  // See AdaptiveDataLoaderHelper.
  int accumulation_steps() const noexcept { return helper_.accumulation_steps(); }
  bool training() const noexcept { return helper_.training(); }
  void to_tensorboard(SummaryWriter& writer, std::int64_t global_step, const std::string& tag_prefix = "") const {
    helper_.to_tensorboard(writer, global_step, tag_prefix);
  }

  // Returns the elastic part of the loader.
  AdaptiveDataLoaderHelper& helper() noexcept { return helper_; }
  const AdaptiveDataLoaderHelper& helper() const noexcept { return helper_; }

 protected:
  // Accepts the same arguments as AdaptiveDataLoaderHelper.
  explicit AdaptiveDataLoaderMixin(std::size_t batch_size, const std::string& name = {}) : helper_(batch_size, name) {}
  ~AdaptiveDataLoaderMixin() = default;

 private:
  AdaptiveDataLoaderHelper helper_;
};

// Returns the loader whose loop is running (the inner loader if two loops are nested), or null if there is none.
AdaptiveDataLoaderHelper* current_dataloader() noexcept;

}  // namespace adaptdl
