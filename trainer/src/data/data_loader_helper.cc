#include "adaptdl/torch/data_loader_helper.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "adaptdl/checkpoint.h"
#include "adaptdl/collective.h"
#include "adaptdl/env.h"
#include "adaptdl/generation.h"
#include "adaptdl/log.h"
#include "adaptdl/metrics.h"
#include "adaptdl/signal.h"
#include "adaptdl/torch/epoch.h"
#include "loop/batch_size_choice.h"
#include "loop/epoch_scope.h"
#include "loop/loop_state.h"
#include "loop/step_boundary.h"
#include "support/regroup.h"
#include "support/replicas.h"
#include "support/step_profile.h"
#include "support/tagged_scalars.h"

namespace adaptdl {

namespace {

// A loop that makes no progress in this many steps and a whole pass will never make progress.
constexpr std::size_t kIdleSteps = 50;

AdaptiveDataLoaderHelper* current = nullptr;   // the loader whose loop is running; the inner loader of nested loops
AdaptiveDataLoaderHelper* training = nullptr;  // the training loader
std::uint32_t loaders = 0;                     // number of loaders created so far; the same on each replica

// The index of the next loader loop in this run of the epoch, across all loaders.
int& next_position() {
  static std::uint64_t run = 0;
  static int position = 0;
  if (std::exchange(run, internal::epoch_run()) != run) position = 0;
  return position;
}

}  // namespace

AdaptiveDataLoaderHelper::AdaptiveDataLoaderHelper(std::size_t batch_size, const std::string& name)
    : batch_size_(batch_size) {
  if (batch_size == 0)
    throw UsageError("the batch_size of a data loader must be at least 1 (samples over all replicas)");
  if (current) {
    throw UsageError(
        fmt::format("cannot create a data loader while the loop of '{}' is running; create it before or after the loop",
                    current->name()));
  }
  signal::install();
  number_ = ++loaders;
  const auto count = internal::count_in_epoch("dataloader");
  const auto own = name.empty() ? std::to_string(count) : name;
  state_ = internal::make_in_epoch<LoopState>(fmt::format("adaptdl-dataloader-{}-{}", internal::epoch_label(), own));
}

AdaptiveDataLoaderHelper::~AdaptiveDataLoaderHelper() {
  if (current == this) current = outer_;
  if (adaptdl::training == this) adaptdl::training = nullptr;
}

const std::string& AdaptiveDataLoaderHelper::name() const noexcept { return state_->name(); }

AdaptiveDataLoaderHelper::Context::Context(AdaptiveDataLoaderHelper& helper)
    : helper_(&helper), exceptions_(std::uncaught_exceptions()) {
  helper.begin();
}

AdaptiveDataLoaderHelper::Context::Context(Context&& other) noexcept
    : helper_(std::exchange(other.helper_, nullptr)), exceptions_(other.exceptions_) {}

AdaptiveDataLoaderHelper::Context::~Context() {
  if (!helper_) return;
  if (std::uncaught_exceptions() > exceptions_) {
    helper_->abandon();
  } else {
    helper_->finish();
  }
}

AdaptiveDataLoaderHelper::Context AdaptiveDataLoaderHelper::context() { return Context(*this); }

void AdaptiveDataLoaderHelper::begin() {
  const auto epoch = current_epoch();
  if (!epoch) {
    throw UsageError(fmt::format(
        "data loader '{}' is iterated outside an epoch loop; iterate it inside a loop over remaining_epochs_until(N)",
        name()));
  }
  state_->enter(*epoch);
  if (current) nest();
  current = this;
  skipped_ = in_batch_ = last_batch_ = boundary_passed_ = data_end_ = new_replicas_ = false;
  accumulated_ = 0;
  batches_by_hand_ = 1;
  regroups_ = internal::regroups();
  state_->running = true;
  step_index_ = state_->place.index;
  step_end_index_ = state_->place.end_index;
  idle_ = {};
}

// Begins this loop inside the loop of another loader.
void AdaptiveDataLoaderHelper::nest() {
  if (state_->running)
    throw UsageError(fmt::format("the loops of data loader '{}' are nested; end one before the next begins", name()));
  if (current->nested() || training()) {
    throw UsageError(
        fmt::format("the loop of data loader '{}' is nested in the loop of '{}': {}", name(), current->name(),
                    training() ? "only loaders that do not train can be nested; end one loop before the next begins"
                               : "only two loops can be nested; end one before the next begins"));
  }
  outer_ = current;
  outer_->commit_ = false;  // the outer loader's batch includes the time of this loop
  state_->outside = std::exchange(state_->place, {});
}

void AdaptiveDataLoaderHelper::finish() noexcept {
  if (nested()) {
    leave();
    return;
  }
  auto& position = next_position();
  if (!skipped_) {
    state_->finished = position;
    state_->finished_size = {.local_bsz = current_local_bsz_, .accumulation_steps = accumulation_steps_};
    state_->finished_replicas = replicas_;
    state_->place = {};
  }
  ++position;
  leave();
}

void AdaptiveDataLoaderHelper::abandon() noexcept {
  // An unfinished step's gradients are lost, so its batches must be read again.
  if (in_batch_ || accumulated_ > 0 || (training() && internal::step_is_unfinished())) {
    state_->place.index = step_index_;
    state_->place.end_index = step_end_index_;
  }
  leave();
}

void AdaptiveDataLoaderHelper::leave() noexcept {
  if (training()) internal::drop_unfinished_steps();
  if (nested()) state_->place = state_->outside;
  state_->running = false;
  current = std::exchange(outer_, nullptr);
}

bool AdaptiveDataLoaderHelper::skipdone() {
  if (nested()) return false;
  const auto position = next_position();
  skipped_ = position <= state_->finished;
  if (skipped_) {
    current_local_bsz_ = state_->finished_size.local_bsz;
    accumulation_steps_ = state_->finished_size.accumulation_steps;
    replicas_ = state_->finished_replicas;
  }
  if (skipped_ && internal::replica_rank() == 0) {
    log::info(
        fmt::format("skipping loop {} of epoch {} ({}): finished before the restart", position, state_->epoch, name()));
  }
  if (!skipped_ && generation::joining()) {
    internal::join_if_newcomer();
    new_replicas_ = true;
  }
  return skipped_;
}

void AdaptiveDataLoaderHelper::check_dataset(std::size_t samples) {
  auto& saved = state_->place.dataset_size;
  if (state_->place.index > 0 && saved != 0 && saved != samples) {
    throw Error(fmt::format(
        "data loader '{}' cannot resume in the middle of its dataset, which had {} samples when the checkpoint was "
        "saved, but has {} now; use the same data, or start from the beginning with another checkpoint directory",
        name(), saved, samples));
  }
  if (state_->place.index >= samples && state_->place.index > 0 && saved == 0) {
    throw Error(fmt::format(
        "data loader '{}' cannot resume at sample {} of a dataset of {}; use the data that the checkpoint was saved "
        "with, or start from the beginning with another checkpoint directory",
        name(), state_->place.index, samples));
  }
  saved = samples;
}

internal::BatchSizeRange AdaptiveDataLoaderHelper::range() const {
  auto max_batch_size = *max_batch_size_;
  // A step with more samples than the data set has would read some samples twice.
  if (state_->place.dataset_size > 0)
    max_batch_size = std::min(max_batch_size, std::max(batch_size_, state_->place.dataset_size));
  return {batch_size_, {max_batch_size, bounds_.min, bounds_.max, gradient_accumulation_}};
}

void AdaptiveDataLoaderHelper::choose_anew() {
  auto& choice = state_->choice;
  const auto replicas = internal::num_replicas();
  if (!max_batch_size_) {
    const internal::BatchSizeRange fixed{batch_size_, {}};
    if (choice.replicas() != replicas || choice.size() != internal::even_batch_size(fixed, replicas))
      choice.begin(internal::even_batch_size(fixed, replicas), replicas);
    return;
  }
  if (choice.holds(range(), replicas)) return;
  // Rank 0 chooses for all replicas, because their measurements differ.
  auto size = choice.choose_anew(range(), env::num_nodes(), replicas);
  nlohmann::json chosen;
  try {
    chosen = collective::broadcast({{"local_bsz", size.local_bsz}, {"accumulation_steps", size.accumulation_steps}},
                                   "batch size of " + name());
  } catch (const collective::CollectiveError&) {
    internal::recover();
    return choose_anew();
  }
  chosen.at("local_bsz").get_to(size.local_bsz);
  chosen.at("accumulation_steps").get_to(size.accumulation_steps);
  choice.begin(size, replicas);
  state_->warm_bsz = 0;
}

std::size_t AdaptiveDataLoaderHelper::sync_local_bsz() {
  if (accumulated_ > 0) return current_local_bsz_;
  if (!in_batch_ && !nested()) take_decision();  // otherwise, the next boundary applies it
  choose_anew();
  replicas_ = static_cast<std::size_t>(internal::num_replicas());
  if (boundary_passed_) new_replicas_ = false;
  const auto& size = state_->choice.size();
  current_local_bsz_ = size.local_bsz;
  accumulation_steps_ = size.accumulation_steps;
  return current_local_bsz_;
}

bool AdaptiveDataLoaderHelper::batch_size_changed() const noexcept {
  const auto& size = state_->choice.size();
  return accumulated_ == 0 &&
         (new_replicas_ || size.local_bsz != current_local_bsz_ || size.accumulation_steps != accumulation_steps_);
}

// Applies a decision that rank 0 has submitted. It may concern a loop other than the running one.
void AdaptiveDataLoaderHelper::take_decision() {
  const auto& agreed = internal::receive_agreement();
  if (agreed.batch_size && adaptdl::training && adaptdl::training->number_ == agreed.loader)
    adaptdl::training->state_->choice.change(*agreed.batch_size);
}

void AdaptiveDataLoaderHelper::check_bounds(std::size_t max_batch_size, const LocalBszBounds& bounds,
                                            bool accumulation) const {
  const auto where = [&] { return fmt::format("autoscale_batch_size of data loader '{}'", name()); };
  if (max_batch_size < batch_size_) {
    throw UsageError(
        fmt::format("{}: max_batch_size {} is below the initial batch_size {}", where(), max_batch_size, batch_size_));
  }
  if (bounds.min == 0u || bounds.max == 0u)
    throw UsageError(fmt::format("{}: local batch size bounds must be at least 1 sample, got 0", where()));
  if (bounds.min && bounds.max && *bounds.min > *bounds.max) {
    throw UsageError(fmt::format("{}: the lower local batch size bound {} is above the upper bound {}", where(),
                                 *bounds.min, *bounds.max));
  }
  if (bounds.min && *bounds.min > batch_size_) {
    throw UsageError(fmt::format("{}: the lower local batch size bound {} is above the initial batch_size {}", where(),
                                 *bounds.min, batch_size_));
  }
  const auto replicas = static_cast<std::size_t>(internal::num_replicas());
  const auto share = (batch_size_ + replicas - 1) / replicas;
  if (bounds.max && *bounds.max < share && !accumulation) {
    throw UsageError(
        fmt::format("{}: batch_size {} on {} replica{} is {} per replica, above the upper local batch size bound {}; "
                    "allow gradient accumulation, or raise the bound",
                    where(), batch_size_, replicas, replicas == 1 ? "" : "s", share, *bounds.max));
  }
  if (adaptdl::training && adaptdl::training != this) {
    throw UsageError(fmt::format("{}: '{}' is already the data loader for training; there can be only one", where(),
                                 adaptdl::training->name()));
  }
}

void AdaptiveDataLoaderHelper::autoscale_batch_size(std::size_t max_batch_size, LocalBszBounds bounds,
                                                    bool gradient_accumulation) {
  check_bounds(max_batch_size, bounds, gradient_accumulation);
  max_batch_size_ = max_batch_size;
  bounds_ = bounds;
  gradient_accumulation_ = gradient_accumulation;
  adaptdl::training = this;
  tell_batch_sizes();
}

AdaptiveDataLoaderHelper::Profile::Profile(AdaptiveDataLoaderHelper& helper)
    : helper_(&helper), exceptions_(std::uncaught_exceptions()) {}

AdaptiveDataLoaderHelper::Profile::Profile(Profile&& other) noexcept
    : helper_(std::exchange(other.helper_, nullptr)), exceptions_(other.exceptions_) {}

AdaptiveDataLoaderHelper::Profile::~Profile() {
  // An exception leaves the batch unfinished.
  if (helper_ && std::uncaught_exceptions() <= exceptions_) helper_->end_batch(true);
}

AdaptiveDataLoaderHelper::Profile AdaptiveDataLoaderHelper::profile(bool commit,
                                                                    std::optional<std::size_t> batches_left) {
  step_boundary(batches_left);
  commit_ = commit;
  return time_batch();
}

void AdaptiveDataLoaderHelper::step_boundary(std::optional<std::size_t> batches_left) {
  // Just after the replicas changed, some replicas pass the number of batches left before the change, and others the
  // number after it.
  pass({.batches_left = batches_left, .last = batches_left == 1u && !new_replicas_}, [&] {
    choose_anew();
    return std::optional<Boundary>({.batches_left = batches_left, .last = false});
  });
}

bool AdaptiveDataLoaderHelper::pass(Boundary boundary, const LayOut& lay_out) {
  end_batch(true);
  if (nested()) {
    last_batch_ = boundary.last;
    return in_batch_ = true;
  }
  const bool by_hand = boundary_passed_ && training() && internal::step_is_unfinished();
  if (by_hand) ++batches_by_hand_;
  if (accumulated_ == 0 && !by_hand) {
    step_index_ = state_->place.index;
    step_end_index_ = state_->place.end_index;
    if (!agree(boundary, lay_out)) return false;
    batches_by_hand_ = 1;
  }
  last_batch_ = boundary.last;
  in_batch_ = commit_ = true;
  internal::begin_batch();
  return true;
}

bool AdaptiveDataLoaderHelper::agree(Boundary& boundary, const LayOut& lay_out) {
  for (;;) {
    try {
      take_decision();
      data_end_ = std::exchange(boundary_passed_, true) && internal::receive_agreement().data_end;
      if (internal::replica_rank() == 0 && adaptdl::training) adaptdl::training->state_->choice.take_fit();
      internal::settle_boundary();
      if (internal::boundary_is_real() && std::exchange(regroups_, internal::regroups()) != internal::regroups()) {
        new_replicas_ = true;
        data_end_ = false;
        const auto now = lay_out();
        if (!now) return false;
        boundary = *now;
      }
      submit(boundary);
      return true;
    } catch (const collective::CollectiveError&) {
      internal::recover();
    }
  }
}

void AdaptiveDataLoaderHelper::submit(const Boundary& boundary) const {
  const bool decides = internal::replica_rank() == 0;
  const auto batches = static_cast<std::size_t>(accumulation_steps_) + 1;
  internal::Wishes wishes;
  if (boundary.data_end) wishes.data_end = boundary.data_end();
  if (decides && training()) {
    if (state_->place.dataset_size > 0)
      metrics::set_target_progress(progress_until(internal::epochs_end(), state_->place.dataset_size));
    wishes.loader = number_;
    const bool pass_ends = boundary.batches_left && *boundary.batches_left <= batches;
    const bool may_change = max_batch_size_ && !internal::step_is_invalid();
    wishes.batch_size =
        state_->choice.propose(may_change ? std::optional(range()) : std::nullopt, env::num_nodes(), pass_ends);
  }
  const auto samples = current_batch_size();
  const auto in_pass =
      state_->place.dataset_size > 0 ? state_->place.index % state_->place.dataset_size : state_->place.index;
  std::optional<std::size_t> steps_left;
  if (boundary.batches_left) steps_left = (*boundary.batches_left + batches - 1) / batches;
  internal::submit_wishes(wishes, {.loop = this,
                                   .step = samples > 0 ? (in_pass + samples - 1) / samples : 0,
                                   .steps_left = steps_left,
                                   .batch_size = samples,
                                   .samples = samples * static_cast<std::size_t>(batches_by_hand_)});
}

bool AdaptiveDataLoaderHelper::redo_step() {
  if (nested()) return false;
  const auto index = state_->place.index, end_index = state_->place.end_index;
  const bool redo = internal::recover_from_void_step(
      [&] {
        state_->place.index = step_index_;
        state_->place.end_index = step_end_index_;
      },
      [&] {
        state_->place.index = index;
        state_->place.end_index = end_index;
      });
  if (!redo) return false;
  in_batch_ = last_batch_ = false;
  accumulated_ = 0;
  batches_by_hand_ = 1;
  return true;
}

void AdaptiveDataLoaderHelper::end_batch(bool commit) {
  if (!std::exchange(in_batch_, false) || nested()) return;
  std::optional<internal::BatchProfile> profile;
  if (commit && commit_ && !internal::step_is_void() && state_->warm_bsz == current_local_bsz_ && training())
    profile = {env::num_nodes(), static_cast<int>(replicas_), current_local_bsz_, is_accum_step()};
  internal::end_batch(profile);
  state_->warm_bsz = current_local_bsz_;
  accumulated_ = is_optim_step() ? 0 : accumulated_ + 1;
  last_batch_ = false;
}

bool AdaptiveDataLoaderHelper::epoch_done(std::size_t samples) {
  end_batch(true);
  if (!adaptive() || accumulated_ > 0) return false;
  const auto progress = metrics::progress();
  if (progress != idle_.progress) idle_ = {progress, 0, state_->place.index};
  if (++idle_.steps > kIdleSteps && state_->place.index >= idle_.index + samples) {
    if (internal::step_is_invalid())
      throw Error(
          fmt::format("data loader '{}' made no progress in a whole pass, because all gradients were NaN or "
                      "infinite; lower the learning rate and start from an earlier checkpoint",
                      name()));
    throw UsageError(
        fmt::format("data loader '{}' made no progress in a whole pass, so its epoch would never end; give "
                    "AdaptiveDataParallel an Adaptive<> optimizer, and call its step() after each backward pass",
                    name()));
  }
  return progress >= progress_until(state_->epoch + 1, samples);
}

// Returns the progress at which `epochs` epochs over `samples` samples end.
double AdaptiveDataLoaderHelper::progress_until(int epochs, std::size_t samples) const {
  return static_cast<double>(samples) * epochs / static_cast<double>(batch_size_);
}

void AdaptiveDataLoaderHelper::advance() {
  if (redo_step()) return;
  auto& index = state_->place.index;
  const auto samples = state_->place.dataset_size;
  const auto after = index + current_local_bsz_ * replicas_;
  index = samples > 0 ? std::min(after, (index / samples + 1) * samples) : after;
}

void AdaptiveDataLoaderHelper::finish_pass(std::size_t samples) {
  state_->place.index = (state_->place.index + samples - 1) / samples * samples;
}

std::optional<std::size_t> AdaptiveDataLoaderHelper::current_index() const noexcept {
  if (!state_->running) return {};
  return state_->place.index;
}

void AdaptiveDataLoaderHelper::set_current_index(std::size_t index) noexcept {
  if (state_->running) state_->place.index = index;
}

std::size_t AdaptiveDataLoaderHelper::end_index() const noexcept { return state_->place.end_index; }
void AdaptiveDataLoaderHelper::set_end_index(std::size_t index) noexcept { state_->place.end_index = index; }

std::size_t AdaptiveDataLoaderHelper::current_batch_size() const noexcept {
  return current_local_bsz_ * static_cast<std::size_t>(accumulation_steps_ + 1) * replicas_;
}

void AdaptiveDataLoaderHelper::train() {
  if (adaptdl::training) return;
  adaptdl::training = this;
  tell_batch_sizes();
}

void AdaptiveDataLoaderHelper::tell_batch_sizes() const {
  metrics::set_batch_sizes({batch_size_, {max_batch_size_, bounds_.min, bounds_.max, gradient_accumulation_}});
}

bool AdaptiveDataLoaderHelper::training() const noexcept { return adaptdl::training == this; }

void AdaptiveDataLoaderHelper::to_tensorboard(SummaryWriter& writer, std::int64_t global_step,
                                              const std::string& tag_prefix) const {
  internal::TaggedScalars scalars(writer, global_step, tag_prefix);
  scalars.add("Total_Batch_Size", static_cast<double>(current_batch_size()));
  scalars.add("Local_Batch_Size", static_cast<double>(current_local_bsz_));
  scalars.add("Accumulation_Steps", accumulation_steps_);
}

std::optional<std::size_t> AdaptiveDataLoaderMixin::current_local_bsz() const noexcept {
  return helper_.current_index() ? std::optional(helper_.current_local_bsz()) : std::nullopt;
}

std::optional<std::size_t> AdaptiveDataLoaderMixin::current_batch_size() const noexcept {
  return helper_.current_index() ? std::optional(helper_.current_batch_size()) : std::nullopt;
}

AdaptiveDataLoaderHelper* current_dataloader() noexcept { return current; }

}  // namespace adaptdl
