#include "adaptdl/torch/data_loader_helper.h"

#include <exception>
#include <utility>

#include "data/elastic_loop.h"
#include "tensorboard/tagged_scalars.h"

namespace adaptdl {

AdaptiveDataLoaderHelper::AdaptiveDataLoaderHelper(std::size_t batch_size, const std::string& name)
    : loop_(std::make_unique<internal::ElasticLoop>(*this, batch_size, name)) {}
AdaptiveDataLoaderHelper::~AdaptiveDataLoaderHelper() = default;

const std::string& AdaptiveDataLoaderHelper::name() const noexcept { return loop_->name(); }

AdaptiveDataLoaderHelper::Context::Context(AdaptiveDataLoaderHelper& helper)
    : helper_(&helper), exceptions_(std::uncaught_exceptions()) {
  helper.loop_->begin();
}

AdaptiveDataLoaderHelper::Context::Context(Context&& other) noexcept
    : helper_(std::exchange(other.helper_, nullptr)), exceptions_(other.exceptions_) {}

AdaptiveDataLoaderHelper::Context::~Context() {
  if (!helper_) return;
  if (std::uncaught_exceptions() > exceptions_) {
    helper_->loop_->abandon();
  } else {
    helper_->loop_->finish();
  }
}

AdaptiveDataLoaderHelper::Context AdaptiveDataLoaderHelper::context() { return Context(*this); }

AdaptiveDataLoaderHelper::Profile::Profile(AdaptiveDataLoaderHelper& helper)
    : helper_(&helper), exceptions_(std::uncaught_exceptions()) {}

AdaptiveDataLoaderHelper::Profile::Profile(Profile&& other) noexcept
    : helper_(std::exchange(other.helper_, nullptr)), exceptions_(other.exceptions_) {}

AdaptiveDataLoaderHelper::Profile::~Profile() {
  // An exception leaves the batch unfinished.
  if (helper_ && std::uncaught_exceptions() <= exceptions_) helper_->loop_->end_batch(true);
}

AdaptiveDataLoaderHelper::Profile AdaptiveDataLoaderHelper::profile(bool commit,
                                                                    std::optional<std::size_t> batches_left) {
  loop_->step_boundary(batches_left);
  loop_->set_commit(commit);
  return Profile(*this);
}

// ---- the loop ----

bool AdaptiveDataLoaderHelper::skipdone() { return loop_->skipdone(); }
void AdaptiveDataLoaderHelper::check_dataset(std::size_t samples) { loop_->position().check_dataset(name(), samples); }
std::size_t AdaptiveDataLoaderHelper::sync_local_bsz() { return loop_->sync_local_bsz(); }
bool AdaptiveDataLoaderHelper::batch_size_changed() const noexcept { return loop_->batch_size_changed(); }
void AdaptiveDataLoaderHelper::step_boundary(std::optional<std::size_t> batches_left) {
  loop_->step_boundary(batches_left);
}
void AdaptiveDataLoaderHelper::advance() { loop_->advance(); }
bool AdaptiveDataLoaderHelper::redo_step() { return loop_->redo_step(); }
void AdaptiveDataLoaderHelper::finish_pass(std::size_t samples) { loop_->position().finish_pass(samples); }
bool AdaptiveDataLoaderHelper::epoch_done(std::size_t samples) { return loop_->epoch_done(samples); }
bool AdaptiveDataLoaderHelper::nested() const noexcept { return loop_->nested(); }

std::optional<std::size_t> AdaptiveDataLoaderHelper::current_index() const noexcept {
  if (!loop_->running()) return {};
  return loop_->position().index();
}

void AdaptiveDataLoaderHelper::set_current_index(std::size_t index) noexcept {
  if (loop_->running()) loop_->position().set_index(index);
}

std::size_t AdaptiveDataLoaderHelper::end_index() const noexcept { return loop_->position().end_index(); }
void AdaptiveDataLoaderHelper::set_end_index(std::size_t index) noexcept { loop_->position().set_end_index(index); }

// ---- the batch size ----

void AdaptiveDataLoaderHelper::autoscale_batch_size(std::size_t max_batch_size, LocalBszBounds bounds,
                                                    bool gradient_accumulation) {
  loop_->autoscale_batch_size(max_batch_size, bounds, gradient_accumulation);
}

std::size_t AdaptiveDataLoaderHelper::batch_size() const noexcept { return loop_->batch_size().batch_size(); }
std::optional<std::size_t> AdaptiveDataLoaderHelper::max_batch_size() const noexcept {
  return loop_->batch_size().max_batch_size();
}
bool AdaptiveDataLoaderHelper::adaptive() const noexcept { return loop_->batch_size().adaptive(); }
const LocalBszBounds& AdaptiveDataLoaderHelper::local_bsz_bounds() const noexcept {
  return loop_->batch_size().bounds();
}
bool AdaptiveDataLoaderHelper::gradient_accumulation() const noexcept {
  return loop_->batch_size().gradient_accumulation();
}
std::size_t AdaptiveDataLoaderHelper::current_local_bsz() const noexcept { return loop_->batch_size().local_bsz(); }
std::size_t AdaptiveDataLoaderHelper::current_batch_size() const noexcept { return loop_->batch_size().total(); }
int AdaptiveDataLoaderHelper::accumulation_steps() const noexcept { return loop_->batch_size().accumulation_steps(); }
bool AdaptiveDataLoaderHelper::is_accum_step() const noexcept { return !loop_->is_optim_step(); }
bool AdaptiveDataLoaderHelper::is_optim_step() const noexcept { return loop_->is_optim_step(); }
bool AdaptiveDataLoaderHelper::is_last_batch() const noexcept { return loop_->is_last_batch(); }
int AdaptiveDataLoaderHelper::accumulated() const noexcept { return loop_->accumulated(); }
void AdaptiveDataLoaderHelper::train() { loop_->train(); }
bool AdaptiveDataLoaderHelper::training() const noexcept { return loop_->training(); }

void AdaptiveDataLoaderHelper::to_tensorboard(SummaryWriter& writer, std::int64_t global_step,
                                              const std::string& tag_prefix) const {
  internal::TaggedScalars scalars(writer, global_step, tag_prefix);
  scalars.add("Total_Batch_Size", static_cast<double>(current_batch_size()));
  scalars.add("Local_Batch_Size", static_cast<double>(current_local_bsz()));
  scalars.add("Accumulation_Steps", accumulation_steps());
}

std::optional<std::size_t> AdaptiveDataLoaderMixin::current_local_bsz() const noexcept {
  return helper_.current_index() ? std::optional(helper_.current_local_bsz()) : std::nullopt;
}

std::optional<std::size_t> AdaptiveDataLoaderMixin::current_batch_size() const noexcept {
  return helper_.current_index() ? std::optional(helper_.current_batch_size()) : std::nullopt;
}

AdaptiveDataLoaderHelper* current_dataloader() noexcept {
  const auto* const loop = internal::running_loop();
  return loop ? &loop->helper() : nullptr;
}

}  // namespace adaptdl
