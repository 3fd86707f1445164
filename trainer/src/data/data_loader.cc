#include "adaptdl/torch/data_loader.h"

#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "adaptdl/torch/epoch.h"
#include "data/elastic_loop.h"
#include "support/replicas.h"

namespace adaptdl::internal {

namespace {

std::size_t count_batches(std::size_t samples, std::size_t batch_size, bool drop_last) {
  return (drop_last ? samples : samples + batch_size - 1) / batch_size;
}

}  // namespace

std::size_t LoaderLoop::count_slots(const DataLoaderOptions& options) noexcept {
  if (options.workers == 0) return 1;
  return static_cast<std::size_t>(options.prefetch > 0 ? options.prefetch : 2 * options.workers);
}

LoaderLoop::LoaderLoop(AdaptiveDataLoaderHelper& helper, ElasticSampler& sampler, const DataLoaderOptions& options,
                       Fetch fetch)
    : helper_(helper),
      sampler_(sampler),
      fetch_(std::move(fetch)),
      options_(options),
      context_(helper.context()),
      slots_(count_slots(options)),
      skipped_(helper.skipdone()) {
  if (skipped_) return;
  helper.check_dataset(sampler.dataset_size());
  deal();
}

// Divides the rest of the pass into batches of the current size. Drops batches that were fetched ahead.
void LoaderLoop::deal() {
  prefetcher_.reset();
  local_batch_ = helper_.sync_local_bsz();
  sampler_.set_replica(replica_rank(), num_replicas());
  sampler_.set_epoch(*current_epoch(), *helper_.current_index());
  samples_ = sampler_.indices();
  batches_ = count_batches(samples_.size(), local_batch_, options_.drop_last);
  // With drop_last, a dataset smaller than a batch would yield no batches, and an adaptive loop over it would never
  // end.
  const bool whole_pass = sampler_.index() % sampler_.dataset_size() == 0;
  if (batches_ == 0 && whole_pass && helper_.adaptive()) batches_ = 1;
  next_ = 0;
  if (options_.workers == 0 || batches_ == 0) return;
  prefetcher_ =
      std::make_unique<Prefetcher>(static_cast<std::size_t>(options_.workers), slots_, batches_,
                                   [this](std::size_t worker, std::size_t batch) { this->fetch(worker, batch); });
}

// Begins the next pass if the current pass has ended. Returns false if the loop has also ended.
bool LoaderLoop::refill() {
  while (next_ == batches_) {
    helper_.finish_pass(sampler_.dataset_size());
    if (!helper_.adaptive()) return false;
    deal();
  }
  return true;
}

bool LoaderLoop::next(const std::function<void(std::size_t slot)>& take) {
  if (skipped_) return false;
  bool redo = false;
  if (profile_) {
    profile_.reset();
    redo = helper_.redo_step();
    if (!redo) helper_.advance();
    if (!redo && helper_.epoch_done(sampler_.dataset_size())) return false;
  }
  // If the step must be repeated, its samples are dealt again at the boundary.
  if (!redo && !refill()) return false;
  const auto here = [this] {
    const auto left = batches_ - next_;
    return ElasticLoop::Boundary{.batches_left = left, .last = left == 1 && !helper_.adaptive()};
  };
  const auto deal_again = [&] {
    deal();
    return refill() ? std::optional(here()) : std::nullopt;
  };
  if (!helper_.loop().pass(here(), deal_again)) return false;
  profile_.emplace(helper_);
  if (helper_.batch_size_changed()) {
    deal();
    if (!refill()) return false;
  }
  helper_.loop().set_commit(samples_of(next_).size() == local_batch_);
  if (prefetcher_) {
    prefetcher_->take(take);
  } else {
    fetch(0, next_);
    take(0);
  }
  ++next_;
  return true;
}

c10::ArrayRef<std::size_t> LoaderLoop::samples_of(std::size_t batch) const {
  const auto start = batch * local_batch_;
  return c10::ArrayRef<std::size_t>(samples_).slice(start, std::min(local_batch_, samples_.size() - start));
}

void LoaderLoop::fetch(std::size_t worker, std::size_t batch) const {
  const auto samples = samples_of(batch);
  const FetchScope scope(sampler_.seed(), sampler_.epoch(), sampler_.pass(), samples.front());
  fetch_(worker, samples, batch % slots_);
}

at::Tensor pinned(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided && torch::cuda::is_available()
             ? tensor.pin_memory()
             : tensor;
}

DataLoaderOptions checked(DataLoaderOptions options, bool copyable) {
  if (options.batch_size < 1)
    throw UsageError(
        fmt::format("batch_size must be at least 1 (samples across all replicas), got {}", options.batch_size));
  if (options.workers < 0) throw UsageError(fmt::format("workers must be at least 0, got {}", options.workers));
  if (options.prefetch < 0) throw UsageError(fmt::format("prefetch must be at least 0, got {}", options.prefetch));
  if (options.workers > 0 && !copyable) {
    throw UsageError(
        "each data loader worker requires a copy of the dataset, but this dataset cannot be copied; use workers = 0");
  }
  return options;
}

std::size_t batches_per_pass(const DataLoaderOptions& options, std::size_t samples) {
  const auto replicas = static_cast<std::size_t>(num_replicas());
  const auto share = [&](std::size_t total) { return (total + replicas - 1) / replicas; };
  return count_batches(share(samples), share(static_cast<std::size_t>(options.batch_size)), options.drop_last);
}

}  // namespace adaptdl::internal
