#include "adaptdl/torch/data_loader_helper.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "adaptdl/checkpoint.h"
#include "adaptdl/log.h"
#include "adaptdl/signal.h"
#include "adaptdl/torch/epoch.h"
#include "epoch_scope.h"
#include "replicas.h"
#include "step_boundary.h"

namespace adaptdl::torch {

namespace {

AdaptiveDataLoaderHelper* current = nullptr;         // whose loop is running
const AdaptiveDataLoaderHelper* training = nullptr;  // the first that trained

// The number of the next loader loop in this run of the epoch, over all loaders.
int& next_position() {
  static std::uint64_t run = 0;
  static int position = 0;
  if (std::exchange(run, internal::epoch_run()) != run) position = 0;
  return position;
}

}  // namespace

class AdaptiveDataLoaderHelper::LoopState : public checkpoint::State {
 public:
  explicit LoopState(const std::string& name) : State(name) {}

  void save(checkpoint::Writer& writer) const override {
    writer.json("loop", {{"epoch", epoch},
                         {"finished", finished},
                         {"index", index},
                         {"end_index", end_index},
                         {"dataset_size", dataset_size}});
  }

  void load(const checkpoint::Reader& reader) override {
    const auto saved = reader.json("loop");
    try {
      saved.at("epoch").get_to(epoch);
      saved.at("finished").get_to(finished);
      saved.at("index").get_to(index);
      saved.at("end_index").get_to(end_index);
      saved.at("dataset_size").get_to(dataset_size);
    } catch (const nlohmann::json::exception& error) {
      throw checkpoint::CheckpointError(reader.describe() + " is not a data loader's: " + error.what());
    }
  }

  nlohmann::json progress() const override {
    if (!running) return nlohmann::json::object();
    auto progress = nlohmann::json{{"samples", index}};
    if (dataset_size > 0) progress["dataset_size"] = dataset_size;
    return progress;
  }

  // Brings the state to `now`: what it knows of an earlier epoch is of no use in this one.
  void enter(int now) {
    if (epoch == now) return;
    epoch = now;
    finished = -1;
    index = end_index = dataset_size = 0;
  }

  int epoch = -1;                // that the rest is about
  int finished = -1;             // position in the epoch of its loop that finished last
  std::size_t index = 0;         // samples read in the loop that is running, or was interrupted
  std::size_t end_index = 0;     // for custom loaders
  std::size_t dataset_size = 0;  // 0: not known
  bool running = false;
};

AdaptiveDataLoaderHelper::AdaptiveDataLoaderHelper(std::size_t batch_size, const std::string& name)
    : batch_size_(batch_size) {
  if (batch_size == 0)
    throw UsageError("a data loader's batch_size is the number of samples over all replicas: at least 1");
  if (current) {
    throw UsageError(
        fmt::format("a data loader is made while the loop of '{}' is running: make it before the loop, or after it",
                    current->name()));
  }
  signal::install();
  const auto count = internal::count_in_epoch("dataloader");
  const auto own = name.empty() ? std::to_string(count) : name;
  state_ = internal::make_in_epoch<LoopState>(fmt::format("adaptdl-dataloader-{}-{}", internal::epoch_label(), own));
}

AdaptiveDataLoaderHelper::~AdaptiveDataLoaderHelper() {
  if (current == this) current = nullptr;
  if (torch::training == this) torch::training = nullptr;
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
        "data loader '{}' is iterated outside an epoch loop: put the loop into one over remaining_epochs_until(N)",
        name()));
  }
  if (current) {
    throw UsageError(
        current == this
            ? fmt::format("the loops of data loader '{}' are nested: end one before the next begins", name())
            : fmt::format("the loop of data loader '{}' is nested in that of '{}': end one before the next begins",
                          name(), current->name()));
  }
  current = this;
  skipped_ = stepped_ = false;
  accumulated_ = 0;
  state_->enter(*epoch);
  state_->running = true;
}

void AdaptiveDataLoaderHelper::finish() noexcept {
  auto& position = next_position();
  if (!skipped_) {
    state_->finished = position;
    state_->index = state_->end_index = state_->dataset_size = 0;
  }
  ++position;
  abandon();
}

void AdaptiveDataLoaderHelper::abandon() noexcept {
  state_->running = false;
  current = nullptr;
}

bool AdaptiveDataLoaderHelper::skipdone() {
  const auto position = next_position();
  skipped_ = position <= state_->finished;
  if (skipped_ && internal::replica_rank() == 0) {
    log::info(
        fmt::format("skipping loop {} of epoch {} ({}): finished before the restart", position, state_->epoch, name()));
  }
  return skipped_;
}

void AdaptiveDataLoaderHelper::check_dataset(std::size_t samples) {
  auto& saved = state_->dataset_size;
  if (state_->index > 0 && saved != 0 && saved != samples) {
    throw Error(fmt::format(
        "data loader '{}' cannot go on in the middle of its dataset, which had {} samples when the checkpoint was "
        "taken and has {} now: give it the same data, or start anew with another checkpoint directory",
        name(), saved, samples));
  }
  if (state_->index >= samples && state_->index > 0) {
    throw Error(fmt::format(
        "data loader '{}' cannot go on at sample {} of a dataset of {}: give it the data that the checkpoint was "
        "taken with, or start anew with another checkpoint directory",
        name(), state_->index, samples));
  }
  saved = samples;
}

std::size_t AdaptiveDataLoaderHelper::sync_local_bsz() {
  replicas_ = static_cast<std::size_t>(internal::num_replicas());
  current_local_bsz_ = (batch_size_ + replicas_ - 1) / replicas_;
  return current_local_bsz_;
}

void AdaptiveDataLoaderHelper::step_boundary(std::optional<std::size_t> steps_left) {
  if (std::exchange(stepped_, true)) accumulated_ = is_optim_step() ? 0 : accumulated_ + 1;
  const auto samples = current_local_bsz_ * replicas_;
  const auto in_pass = state_->dataset_size > 0 ? state_->index % state_->dataset_size : state_->index;
  internal::step_boundary({.loop = this,
                           .step = samples > 0 ? (in_pass + samples - 1) / samples : 0,
                           .steps_left = steps_left,
                           .batch_size = samples});
}

void AdaptiveDataLoaderHelper::advance() {
  auto& index = state_->index;
  const auto samples = state_->dataset_size;
  const auto after = index + current_local_bsz_ * replicas_;
  index = samples > 0 ? std::min(after, (index / samples + 1) * samples) : after;
}

void AdaptiveDataLoaderHelper::finish_pass(std::size_t samples) {
  state_->index = (state_->index + samples - 1) / samples * samples;
}

std::optional<std::size_t> AdaptiveDataLoaderHelper::current_index() const noexcept {
  if (current != this) return {};
  return state_->index;
}

void AdaptiveDataLoaderHelper::set_current_index(std::size_t index) noexcept {
  if (current == this) state_->index = index;
}

std::size_t AdaptiveDataLoaderHelper::end_index() const noexcept { return state_->end_index; }
void AdaptiveDataLoaderHelper::set_end_index(std::size_t index) noexcept { state_->end_index = index; }

std::size_t AdaptiveDataLoaderHelper::current_batch_size() const noexcept {
  return current_local_bsz_ * static_cast<std::size_t>(accumulation_steps_ + 1) * replicas_;
}

void AdaptiveDataLoaderHelper::train() noexcept {
  if (!torch::training) torch::training = this;
}

bool AdaptiveDataLoaderHelper::training() const noexcept { return torch::training == this; }

AdaptiveDataLoaderHelper* current_dataloader() noexcept { return current; }

}  // namespace adaptdl::torch
