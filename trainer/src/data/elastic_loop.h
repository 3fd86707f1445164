// The loop of a data loader, on which AdaptiveDataLoaderHelper and the loaders of this library are built. It connects
// the loop's position and batch size with the step boundaries, and knows which loop is nested in which.
//
// At most two loops run at a time. A nested loop passes no boundaries, and its batches are not measured. The state is
// shared with the epoch in which the loader was created.
//
// Threading: only the training thread may use the class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "adaptdl/torch/data_loader_helper.h"
#include "loop/batch_size_policy.h"
#include "loop/epoch_progress.h"
#include "loop/loop_state.h"

namespace adaptdl::internal {

class ElasticLoop {
 public:
  // Accepts the same arguments and throws the same errors as AdaptiveDataLoaderHelper. `helper` owns the object.
  ElasticLoop(AdaptiveDataLoaderHelper& helper, std::size_t batch_size, const std::string& name);
  ~ElasticLoop();
  ElasticLoop(const ElasticLoop&) = delete;
  ElasticLoop& operator=(const ElasticLoop&) = delete;

  AdaptiveDataLoaderHelper& helper() const noexcept { return helper_; }
  const std::string& name() const noexcept { return state_->name(); }
  LoopPosition& position() noexcept { return state_->position; }
  const BatchSizePolicy& batch_size() const noexcept { return batch_size_; }

  // begin() begins a loop. finish() ends it after its last batch or a `break`, and abandon() ends it after an
  // exception. begin() throws the errors of AdaptiveDataLoaderHelper::context.
  void begin();
  void finish() noexcept;
  void abandon() noexcept;
  bool running() const noexcept { return state_->running; }
  bool nested() const noexcept { return outer_ != nullptr; }

  // See the functions of the same names in AdaptiveDataLoaderHelper.
  bool skipdone();
  std::size_t sync_local_bsz();
  bool batch_size_changed() const noexcept;
  void step_boundary(std::optional<std::size_t> batches_left);
  void advance();
  bool redo_step();
  bool epoch_done(std::size_t samples);
  void autoscale_batch_size(std::size_t max_batch_size, const LocalBszBounds& bounds, bool gradient_accumulation);
  bool is_optim_step() const noexcept { return accumulated_ >= batch_size_.accumulation_steps() || last_batch_; }
  bool is_last_batch() const noexcept { return last_batch_; }
  int accumulated() const noexcept { return accumulated_; }
  void train();
  bool training() const noexcept;

  struct Boundary {
    std::optional<std::size_t> batches_left = {};  // number left in this pass, for the progress report
    bool last = false;                             // whether the next batch is the last of this loop
    std::function<bool()> data_end = {};           // returns whether the coming step is this replica's last
  };
  // Divides the loop's data among the new replicas. Returns the loop's new boundary, or nullopt if the loop has ended.
  using LayOut = std::function<std::optional<Boundary>()>;
  // Passes a boundary. Returns false if the replicas changed and the loop has ended as a result.
  bool pass(Boundary boundary, const LayOut& lay_out);
  // Returns whether this loop has passed a boundary.
  bool boundary_passed() const noexcept { return boundary_passed_; }
  // Returns whether all replicas agreed on the end of the data.
  bool data_end() const noexcept { return data_end_; }

  // Sets whether to record the time of the running batch.
  void set_commit(bool commit) noexcept { commit_ = commit; }
  // Ends the running batch. `commit`: whether its time may be recorded.
  void end_batch(bool commit);

 private:
  static std::shared_ptr<LoopState> make_state(std::size_t batch_size, const std::string& name);
  void nest();
  void leave() noexcept;
  bool agree(Boundary& boundary, const LayOut& lay_out);
  void submit(const Boundary& boundary);
  static void take_decision();

  AdaptiveDataLoaderHelper& helper_;
  const std::shared_ptr<LoopState> state_;
  const std::uint32_t number_;  // identifies this loader among the loaders in this process
  BatchSizePolicy batch_size_;
  EpochProgress epoch_progress_;
  ElasticLoop* outer_ = nullptr;  // the loop in which this one runs
  bool skipped_ = false;
  int accumulated_ = 0;      // batches of the current step that precede this one
  int batches_by_hand_ = 1;  // batches that the program combines into the current step
  bool in_batch_ = false;    // whether a batch has been handed out and has not ended yet
  bool last_batch_ = false;  // whether the current batch is the last of the loop
  bool commit_ = true;       // whether to record the time of the batch
  bool boundary_passed_ = false;
  bool data_end_ = false;
  std::uint64_t regroups_ = 0;  // number of regroups when the loop last checked
  bool new_replicas_ = false;   // whether the replicas have changed since the data was laid out
};

// Returns the running loop (the inner loop if two loops are nested), or null if there is none.
ElasticLoop* running_loop() noexcept;

}  // namespace adaptdl::internal
