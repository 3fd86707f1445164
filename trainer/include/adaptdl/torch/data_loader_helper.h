// The elastic part of a data loader, for those who write one of their own: AdaptiveDataLoader is built on it.
//
// A loop over data, as each replica runs it with the same number of batches:
//
//   class Pages : public AdaptiveDataLoaderMixin {                // gives it autoscale_batch_size and the like
//    public:
//     explicit Pages(std::size_t batch_size) : AdaptiveDataLoaderMixin(batch_size) {}
//     void train(const std::function<void(const Batch&)>& step) {
//       auto& helper = this->helper();
//       auto context = helper.context();                           // the loop begins; it ends with `context`
//       if (helper.skipdone()) return;                             // finished before a restart
//       auto layout = lay_out(helper.sync_local_bsz());            // samples of a batch on each replica
//       while (*helper.current_index() < size) {
//         auto profile = helper.profile(true);                     // here the job may checkpoint and exit
//         if (helper.batch_size_changed()) layout = lay_out(helper.sync_local_bsz());
//         step(layout.batch_at(*helper.current_index()));          // is_optim_step(): whether the optimizer steps
//         helper.advance();
//       }
//     }
//   };
//
// Position: a helper remembers how many samples its loop has read, and which loop of the epoch it finished last, and
// saves both as the state "adaptdl-dataloader-EPOCH-COUNT", where EPOCH is "epochN" for one made in epoch N and
// "epochnone" for one made outside the epoch loop, and COUNT tells those apart by the order they are made in, which is
// the same on every replica and after every restart.
//
// Batch size: fixed, or, with autoscale_batch_size, chosen again and again while the loop runs, for the best goodput.
// Rank 0 decides; the decision reaches every replica at the same boundary. docs/adaptive-training.md has the whole.
//
// Accumulation: a step may take several batches, whose gradients are summed up. All is decided, saved and ended before
// the first batch of a step, so half a step is never saved.
//
// Evaluation: the loop of another loader may run inside that of the one for training, to evaluate every N steps. It is
// always a whole pass from its beginning. Stops, checkpoints and changes of the replicas wait until it has ended, and
// the time of the batch around it does not count.
//
// Rules, each a UsageError when broken: loops run inside an epoch loop; a loop inside another one is for evaluation; no
// loader is made while one runs.
//
// Threading: used by the training thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace adaptdl {

class SummaryWriter;

namespace internal {
class LoaderLoop;
class StreamLoop;
struct BatchSizeRange;
}  // namespace internal

// Bounds of the samples of a batch on one replica, such as what its memory holds; none where not set.
struct LocalBszBounds {
  std::optional<std::size_t> min = {};  // >= 1
  std::optional<std::size_t> max = {};  // >= min
  bool operator==(const LocalBszBounds&) const = default;
};

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

  // --- The loop ---

  // A running loop. Its end counts the loop as finished, unless an exception caused it: then the loop can go on where
  // it was, at the first batch of the step that was interrupted.
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

  // Begins a loop. Throws UsageError outside an epoch loop, and inside another loop if that is nested itself or this
  // loader trains.
  [[nodiscard]] Context context();

  // Whether this loop was finished before a restart, so that it must end without a step. To be called right after
  // context().
  bool skipdone();

  // Throws Error, which names the loader, if the loop is in the middle of a data set of another size than `samples`, or
  // past its end. Remembers the size for the next restart. To be called after skipdone().
  void check_dataset(std::size_t samples);

  // Brings current_local_bsz and accumulation_steps to what was chosen for this number of replicas; returns the former.
  // To be called between two batches, on all replicas alike: when a loop begins, when it begins to read its data once
  // more, and when batch_size_changed(). In the middle of an accumulated step it changes nothing. Throws Error, which
  // says to call init_process_group, without it.
  std::size_t sync_local_bsz();
  // Whether the last boundary brought another choice, or other replicas (of which there may be more or fewer now, and
  // this one may have another rank), so that the data are to be laid out anew, beginning with sync_local_bsz(). A loop
  // that does not do so goes on with the batch size it has.
  bool batch_size_changed() const noexcept;

  // The step boundary, to be called before every batch, equally often on all replicas. Before the first batch of a step
  // all replicas decide here together, on what each submitted at such a boundary before: to go on, to save a periodic
  // checkpoint, or, after a signal to any of them, to save a checkpoint and exit with code 143. What is to be saved
  // must be consistent here. Between the batches of one step it only takes the time. `batches_left`: of this loop, this
  // one included; with the last one the optimizer steps, whatever is accumulated. Throws Error, which says to call
  // init_process_group, without it; CollectiveError if a replica died; CheckpointError if the checkpoint before an exit
  // cannot be saved. A periodic one that fails is a warning.
  void step_boundary(std::optional<std::size_t> batches_left = {});

  // The time of a batch; it ends when this is destroyed.
  class [[nodiscard]] Profile {
   public:
    Profile(Profile&& other) noexcept;
    Profile& operator=(Profile&&) = delete;
    ~Profile();

   private:
    friend class AdaptiveDataLoaderHelper;
    explicit Profile(AdaptiveDataLoaderHelper& helper);
    AdaptiveDataLoaderHelper* helper_;
    int exceptions_;
  };

  // step_boundary(), and then takes the time until the result is destroyed, which is the end of the batch. Without it,
  // the time is taken up to the next boundary. `commit`: whether the time counts; false for a batch that is not like
  // the others, as a short one. The first batch after a change of the batch size or the replicas never counts, nor do
  // those of a loader that is not training().
  Profile profile(bool commit, std::optional<std::size_t> batches_left = {});

  // Counts the samples of a batch: current_index grows by what all replicas read, to the end of the pass at most. It stays
  // where the step began if that is to be done again.
  void advance();

  // Whether the step that has just ended is to be done again, for a replica was lost in it; the position is back at the
  // step's beginning then. To be asked before the position is set by a loop that does so itself in place of advance().
  bool redo_step();

  // Counts a pass over `samples` as done: rounds current_index up to a multiple.
  void finish_pass(std::size_t samples);

  // Whether an epoch over `samples` has made its statistical progress: as much as an epoch of steps of the initial
  // batch size, counted over all epochs so far. Always false unless adaptive(); to be asked after each batch. Throws
  // UsageError when a pass and more is over and there was no progress at all: the optimizer never steps.
  bool epoch_done(std::size_t samples);

  // Whether its loop runs inside that of another loader.
  bool nested() const noexcept { return outer_ != nullptr; }

  // Samples that all replicas have read in this loop; none while it is not running. Setting it then does nothing.
  std::optional<std::size_t> current_index() const noexcept;
  void set_current_index(std::size_t index) noexcept;

  // For the loader's own use: saved and restored, and 0 when a loop begins anew.
  std::size_t end_index() const noexcept;
  void set_end_index(std::size_t index) noexcept;

  // --- The batch size ---

  // Lets the batch size be chosen for the best goodput: from batch_size up to `max_batch_size` samples a step over all
  // replicas, within `bounds` on each replica. `gradient_accumulation`: whether a step may take several batches, where
  // a replica's share of it is larger than bounds.max, or where a single replica could not measure the noise of its
  // gradients. With `max_batch_size` equal to batch_size nothing is left to choose: the total stays fixed on any number
  // of replicas, and an epoch is a pass over the data. Makes this loader the one for training. To be called once, on
  // all replicas alike, before the first loop.
  // Throws UsageError, which names the value, if max_batch_size is below batch_size; if a bound is 0, if the lower one
  // is above the upper one or batch_size; if batch_size on the present replicas exceeds the upper one without
  // accumulation; and if another loader is the one for training.
  void autoscale_batch_size(std::size_t max_batch_size, LocalBszBounds bounds = {}, bool gradient_accumulation = false);

  // Samples of a step over all replicas, as asked for: the initial ones, if the batch size is autoscaled.
  std::size_t batch_size() const noexcept { return batch_size_; }
  // None unless autoscaled.
  std::optional<std::size_t> max_batch_size() const noexcept { return max_batch_size_; }
  // Whether the total may grow beyond batch_size, so that epochs end by statistical progress.
  bool adaptive() const noexcept { return max_batch_size_ && *max_batch_size_ > batch_size_; }
  // As given to autoscale_batch_size.
  const LocalBszBounds& local_bsz_bounds() const noexcept { return bounds_; }
  bool gradient_accumulation() const noexcept { return gradient_accumulation_; }

  // Samples of a batch on each replica, in the current or last loop, also if that was before a restart. 0 before any.
  std::size_t current_local_bsz() const noexcept { return current_local_bsz_; }
  // Samples between two optimizer steps, over all replicas: current_local_bsz x (accumulation_steps + 1) x replicas.
  std::size_t current_batch_size() const noexcept;
  // How many batches are accumulated before the one with which the optimizer steps.
  int accumulation_steps() const noexcept { return accumulation_steps_; }
  // Whether the gradients of the current batch are accumulated only, or the optimizer steps with it.
  bool is_accum_step() const noexcept { return !is_optim_step(); }
  bool is_optim_step() const noexcept { return accumulated_ >= accumulation_steps_ || last_batch_; }
  // Whether the loop ends after this batch, as far as the loader knows: not where it ends by progress.
  bool is_last_batch() const noexcept { return last_batch_; }
  // How many batches of the current step came before this one. Gradients that were accumulated before a batch where it
  // is 0 are of a step that was never finished, for a `break` or an exception left its loop.
  int accumulated() const noexcept { return accumulated_; }

  // Makes this loader the one for training, if there is none yet. Its batch sizes become part of the scheduling hints.
  void train();
  // Whether this loader is the one for training.
  bool training() const noexcept;

  // Writes the scalars Total_Batch_Size, Local_Batch_Size and Accumulation_Steps, after "`tag_prefix`/" if there is
  // one.
  void to_tensorboard(SummaryWriter& writer, std::int64_t global_step, const std::string& tag_prefix = "") const;

 private:
  friend class internal::LoaderLoop;
  friend class internal::StreamLoop;
  class LoopState;
  struct Boundary {
    std::optional<std::size_t> batches_left = {};  // of this pass, for the progress report
    bool last = false;                             // of this loop
    std::function<bool()> data_end = {};           // whether the step that begins is this replica's last
  };
  void begin();
  void nest();
  void finish() noexcept;
  void abandon() noexcept;
  void leave() noexcept;
  // Says where the loop is after it was laid out anew for other replicas; none if it is over.
  using LayOut = std::function<std::optional<Boundary>()>;
  // A boundary. False if the replicas changed and with them the loop is over.
  bool pass(Boundary boundary, const LayOut& lay_out = {});
  bool agree(Boundary& boundary, const LayOut& lay_out);
  void submit(const Boundary& boundary) const;
  Profile time_batch() { return Profile(*this); }
  void end_batch(bool commit);
  void check_bounds(std::size_t max_batch_size, const LocalBszBounds& bounds, bool accumulation) const;
  internal::BatchSizeRange range() const;
  void choose_anew();
  static void take_decision();
  void tell_batch_sizes() const;
  double progress_until(int epochs, std::size_t samples) const;

  // What the program asked for.
  std::size_t batch_size_;
  std::optional<std::size_t> max_batch_size_;
  LocalBszBounds bounds_;
  bool gradient_accumulation_ = false;
  std::uint32_t number_;  // among the loaders of this process
  // What is in use.
  std::size_t replicas_ = 1;
  std::size_t current_local_bsz_ = 0;
  int accumulation_steps_ = 0;
  // Where the loop is.
  AdaptiveDataLoaderHelper* outer_ = nullptr;  // in whose loop this one runs
  bool skipped_ = false;
  int accumulated_ = 0;
  int batches_by_hand_ = 1;                          // since the last boundary, which the program makes one step
  std::size_t step_index_ = 0, step_end_index_ = 0;  // current_index and end_index where this step began
  bool in_batch_ = false;                            // a batch was handed out and has not ended
  bool last_batch_ = false;                          // of the loop
  bool commit_ = true;                               // whether the time of the batch counts
  bool boundary_passed_ = false;                     // in this loop
  bool data_end_ = false;                            // whether all agreed on the end of the data
  std::uint64_t regroups_ = 0;                       // when the loop last looked
  bool new_replicas_ = false;                        // since the data were laid out
  // Steps of this loop that made no progress, and where they began.
  struct {
    double progress = -1;
    std::size_t steps = 0;
    std::size_t index = 0;
  } idle_;
  std::shared_ptr<LoopState> state_;  // shared with the epoch that it was made in
};

// What a loader of one's own derives from, to offer what AdaptiveDataLoader does.
class AdaptiveDataLoaderMixin {
 public:
  // See AdaptiveDataLoaderHelper.
  void autoscale_batch_size(std::size_t max_batch_size, LocalBszBounds bounds = {},
                            bool gradient_accumulation = false) {
    helper_.autoscale_batch_size(max_batch_size, bounds, gradient_accumulation);
  }
  // None while its loop is not running.
  std::optional<std::size_t> current_local_bsz() const noexcept;
  std::optional<std::size_t> current_batch_size() const noexcept;
  // See AdaptiveDataLoaderHelper.
  int accumulation_steps() const noexcept { return helper_.accumulation_steps(); }
  bool training() const noexcept { return helper_.training(); }
  void to_tensorboard(SummaryWriter& writer, std::int64_t global_step, const std::string& tag_prefix = "") const {
    helper_.to_tensorboard(writer, global_step, tag_prefix);
  }

  // The elastic part of the loader.
  AdaptiveDataLoaderHelper& helper() noexcept { return helper_; }
  const AdaptiveDataLoaderHelper& helper() const noexcept { return helper_; }

 protected:
  // Arguments are those of AdaptiveDataLoaderHelper.
  explicit AdaptiveDataLoaderMixin(std::size_t batch_size, const std::string& name = {}) : helper_(batch_size, name) {}
  ~AdaptiveDataLoaderMixin() = default;

 private:
  AdaptiveDataLoaderHelper helper_;
};

// The loader whose loop is running, the inner one of two; null while none is.
AdaptiveDataLoaderHelper* current_dataloader() noexcept;

}  // namespace adaptdl
