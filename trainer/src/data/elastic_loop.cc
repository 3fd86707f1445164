#include "data/elastic_loop.h"

#include <fmt/format.h>

#include <utility>

#include "adaptdl/collective.h"
#include "adaptdl/env.h"
#include "adaptdl/generation.h"
#include "adaptdl/log.h"
#include "adaptdl/metrics.h"
#include "adaptdl/signal.h"
#include "adaptdl/torch/epoch.h"
#include "loop/epoch_scope.h"
#include "loop/step_boundary.h"
#include "support/regroup.h"
#include "support/replicas.h"
#include "support/step_profile.h"

namespace adaptdl::internal {

namespace {

ElasticLoop* innermost = nullptr;      // the running loop; the inner loop of nested loops
ElasticLoop* training_loop = nullptr;  // the loop of the training loader
std::uint32_t loaders = 0;             // number of loaders created so far; the same on each replica

// The index of the next loader loop in this run of the epoch, across all loaders.
int& next_index() {
  static std::uint64_t run = 0;
  static int index = 0;
  if (std::exchange(run, epoch_run()) != run) index = 0;
  return index;
}

}  // namespace

ElasticLoop* running_loop() noexcept { return innermost; }

ElasticLoop::ElasticLoop(AdaptiveDataLoaderHelper& helper, std::size_t batch_size, const std::string& name)
    : helper_(helper),
      state_(make_state(batch_size, name)),
      number_(loaders),
      batch_size_(batch_size, *state_),
      epoch_progress_(batch_size, *state_) {}

// Checks the constructor's arguments, counts the loader, and loads its state.
std::shared_ptr<LoopState> ElasticLoop::make_state(std::size_t batch_size, const std::string& name) {
  if (batch_size == 0)
    throw UsageError("the batch_size of a data loader must be at least 1 (samples across all replicas)");
  if (innermost) {
    throw UsageError(
        fmt::format("cannot create a data loader while the loop of '{}' is running; create it before or after the loop",
                    innermost->name()));
  }
  signal::install();
  ++loaders;
  const auto count = count_in_epoch("dataloader");
  const auto own = name.empty() ? std::to_string(count) : name;
  return make_in_epoch<LoopState>(fmt::format("adaptdl-dataloader-{}-{}", epoch_label(), own));
}

ElasticLoop::~ElasticLoop() {
  if (innermost == this) innermost = outer_;
  if (training_loop == this) training_loop = nullptr;
}

void ElasticLoop::begin() {
  const auto epoch = current_epoch();
  if (!epoch) {
    throw UsageError(fmt::format(
        "data loader '{}' is iterated outside an epoch loop; iterate it inside a loop over remaining_epochs_until(N)",
        name()));
  }
  position().enter(*epoch);
  if (innermost) nest();
  innermost = this;
  skipped_ = in_batch_ = last_batch_ = boundary_passed_ = data_end_ = new_replicas_ = false;
  accumulated_ = 0;
  batches_by_hand_ = 1;
  regroups_ = regroups();
  state_->running = true;
  position().begin_step();
  epoch_progress_.begin();
}

// Begins this loop inside the running loop.
void ElasticLoop::nest() {
  if (state_->running)
    throw UsageError(
        fmt::format("data loader '{}' is iterated inside its own loop; end one loop before the next begins", name()));
  if (innermost->nested() || training()) {
    throw UsageError(
        fmt::format("the loop of data loader '{}' is nested in the loop of '{}': {}", name(), innermost->name(),
                    training() ? "only a loop that does not train the model, such as an evaluation, can be nested; end "
                                 "one training loop before the next begins"
                               : "at most two loops can be nested; end one before the next begins"));
  }
  outer_ = innermost;
  outer_->commit_ = false;  // the outer loader's batch includes the time of this loop
  position().begin_nested();
}

void ElasticLoop::finish() noexcept {
  if (nested()) {
    leave();
    return;
  }
  auto& index = next_index();
  if (!skipped_) {
    position().finish(index);
    batch_size_.save_finished();
  }
  ++index;
  leave();
}

void ElasticLoop::abandon() noexcept {
  // An unfinished step's gradients are lost, so its batches must be read again.
  if (in_batch_ || accumulated_ > 0 || (training() && step_is_unfinished())) position().rewind();
  leave();
}

void ElasticLoop::leave() noexcept {
  if (training()) drop_unfinished_steps();
  if (nested()) position().end_nested();
  state_->running = false;
  innermost = std::exchange(outer_, nullptr);
}

bool ElasticLoop::skipdone() {
  if (nested()) return false;
  const auto index = next_index();
  skipped_ = position().is_finished(index);
  if (skipped_) batch_size_.restore_finished();
  if (skipped_ && replica_rank() == 0) {
    log::info(fmt::format("skipping loop {} of epoch {} ({}): finished before the restart", index, position().epoch(),
                          name()));
  }
  if (!skipped_ && generation::joining()) {
    join_if_newcomer();
    new_replicas_ = true;
  }
  return skipped_;
}

std::size_t ElasticLoop::sync_local_bsz() {
  if (accumulated_ > 0) return batch_size_.local_bsz();
  if (!in_batch_ && !nested()) take_decision();  // otherwise, the next boundary applies the decision
  batch_size_.choose();
  if (boundary_passed_) new_replicas_ = false;
  batch_size_.adopt_choice();
  return batch_size_.local_bsz();
}

bool ElasticLoop::batch_size_changed() const noexcept {
  return accumulated_ == 0 && (new_replicas_ || batch_size_.has_new_choice());
}

// Applies a decision that rank 0 has submitted. It may concern a loop other than the running one.
void ElasticLoop::take_decision() {
  const auto& agreed = receive_agreement();
  if (agreed.batch_size && training_loop && training_loop->number_ == agreed.loader)
    training_loop->state_->choice.change(*agreed.batch_size);
}

void ElasticLoop::autoscale_batch_size(std::size_t max_batch_size, const LocalBszBounds& bounds,
                                       bool gradient_accumulation) {
  batch_size_.check_limits(max_batch_size, bounds, gradient_accumulation);
  if (training_loop && training_loop != this) {
    throw UsageError(fmt::format(
        "autoscale_batch_size of data loader '{}': '{}' is already the data loader for training; there can be only one",
        name(), training_loop->name()));
  }
  batch_size_.set_limits(max_batch_size, bounds, gradient_accumulation);
  training_loop = this;
  batch_size_.report();
}

void ElasticLoop::train() {
  if (training_loop) return;
  training_loop = this;
  batch_size_.report();
}

bool ElasticLoop::training() const noexcept { return training_loop == this; }

void ElasticLoop::step_boundary(std::optional<std::size_t> batches_left) {
  // Just after a change of the replicas, some replicas pass the number of batches left before the change, and others
  // the number left after it.
  pass({.batches_left = batches_left, .last = batches_left == 1u && !new_replicas_}, [&] {
    batch_size_.choose();
    return std::optional<Boundary>({.batches_left = batches_left, .last = false});
  });
}

bool ElasticLoop::pass(Boundary boundary, const LayOut& lay_out) {
  end_batch(true);
  if (nested()) {
    last_batch_ = boundary.last;
    return in_batch_ = true;
  }
  const bool by_hand = boundary_passed_ && training() && step_is_unfinished();
  if (by_hand) ++batches_by_hand_;
  if (accumulated_ == 0 && !by_hand) {
    position().begin_step();
    if (!agree(boundary, lay_out)) return false;
    batches_by_hand_ = 1;
  }
  last_batch_ = boundary.last;
  in_batch_ = commit_ = true;
  begin_batch();
  return true;
}

bool ElasticLoop::agree(Boundary& boundary, const LayOut& lay_out) {
  for (;;) {
    try {
      take_decision();
      data_end_ = std::exchange(boundary_passed_, true) && receive_agreement().data_end;
      if (replica_rank() == 0 && training_loop) training_loop->state_->choice.take_fit();
      settle_boundary();
      if (boundary_is_real() && std::exchange(regroups_, regroups()) != regroups()) {
        new_replicas_ = true;
        data_end_ = false;
        const auto now = lay_out();
        if (!now) return false;
        boundary = *now;
      }
      submit(boundary);
      return true;
    } catch (const collective::CollectiveError&) {
      recover();
    }
  }
}

void ElasticLoop::submit(const Boundary& boundary) {
  const auto batches = static_cast<std::size_t>(batch_size_.accumulation_steps()) + 1;
  LoopRequests requests;
  if (boundary.data_end) requests.data_end = boundary.data_end();
  const auto samples_in_pass = position().dataset_size();
  if (replica_rank() == 0 && training()) {
    if (samples_in_pass > 0) metrics::set_target_progress(epoch_progress_.at_end_of(epochs_end(), samples_in_pass));
    requests.loader = number_;
    const bool pass_ends = boundary.batches_left && *boundary.batches_left <= batches;
    requests.batch_size = batch_size_.propose(pass_ends);
  }
  const auto samples = batch_size_.total();
  const auto index = position().index();
  const auto in_pass = samples_in_pass > 0 ? index % samples_in_pass : index;
  std::optional<std::size_t> steps_left;
  if (boundary.batches_left) steps_left = (*boundary.batches_left + batches - 1) / batches;
  submit_requests(requests, {.loop = &helper_,
                             .step = samples > 0 ? (in_pass + samples - 1) / samples : 0,
                             .steps_left = steps_left,
                             .batch_size = samples,
                             .samples = samples * static_cast<std::size_t>(batches_by_hand_)});
}

bool ElasticLoop::redo_step() {
  if (nested()) return false;
  auto& here = position();
  const auto index = here.index(), end_index = here.end_index();
  const bool redo = recover_from_void_step([&] { here.rewind(); },
                                           [&] {
                                             here.set_index(index);
                                             here.set_end_index(end_index);
                                           });
  if (!redo) return false;
  in_batch_ = last_batch_ = false;
  accumulated_ = 0;
  batches_by_hand_ = 1;
  return true;
}

void ElasticLoop::end_batch(bool commit) {
  if (!std::exchange(in_batch_, false) || nested()) return;
  const auto local_bsz = batch_size_.local_bsz();
  std::optional<BatchProfile> profile;
  if (commit && commit_ && !step_is_void() && state_->warm_bsz == local_bsz && training())
    profile = {env::num_nodes(), static_cast<int>(batch_size_.replicas()), local_bsz, !is_optim_step()};
  internal::end_batch(profile);
  state_->warm_bsz = local_bsz;
  accumulated_ = is_optim_step() ? 0 : accumulated_ + 1;
  last_batch_ = false;
}

bool ElasticLoop::epoch_done(std::size_t samples) {
  end_batch(true);
  if (!batch_size_.adaptive() || accumulated_ > 0) return false;
  return epoch_progress_.reached(samples);
}

void ElasticLoop::advance() {
  if (redo_step()) return;
  position().advance(batch_size_.local_bsz() * batch_size_.replicas());
}

}  // namespace adaptdl::internal
