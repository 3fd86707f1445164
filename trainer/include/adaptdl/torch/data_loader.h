// The data loader for elastic jobs. It divides the batches of a dataset among any number of replicas, across restarts.
//
//   AdaptiveDataLoader loader(MNIST("data"), {.batch_size = 64, .shuffle = true, .workers = 2});
//   for (int epoch : remaining_epochs_until(30)) {
//     for (auto& batch : loader) { ... batch.data, batch.target ... }
//   }
//
// It differs from LibTorch's data loader as follows:
// - `batch_size` is the total across all replicas. Each replica receives its part of every batch, and all replicas
//   receive the same number of batches.
// - It deals the samples itself (sampler.h describes the order and the guarantees), so it accepts no custom sampler.
// - It must be iterated inside an epoch loop. An evaluation loader may be iterated inside another loader's loop. Before
//   each batch, the job may checkpoint and exit (see AdaptiveDataLoaderHelper::step_boundary). After a restart, the
//   loader skips the finished loops of the epoch, and resumes the interrupted loop at the sample that it had reached.
// - A loop that is left by `break` is considered finished. All replicas must leave the loop at the same batch.
// - With autoscale_batch_size, the loader chooses the total batch size for the best goodput while the loop is running,
//   and the loop ends when it has made enough statistical progress: it may read the data several times, or end in the
//   middle of a pass (docs/adaptive-training.md).
//
// Datasets: any type with LibTorch's `get_batch(c10::ArrayRef<size_t>)` and `size()`, such as
// torch::data::datasets::MNIST and TensorDataset, a class derived from Dataset, or a dataset with transforms. A batch
// is the result of `get_batch`, passed through `collate`. By default, `collate` stacks a vector of examples into one
// example, like LibTorch's Stack, and returns everything else unchanged.
//
// Threads: `workers` threads fetch and collate the next batches while the training thread is training. As in LibTorch,
// each worker uses its own copy of the dataset; all workers share one `collate`. A worker's exception is rethrown in
// the training thread, at the batch that caused it. Without workers, the training thread fetches and collates the
// batches.
//
// Random numbers: dealing and prefetching do not use LibTorch's default generator. Datasets should use
// sample_generator().
//
// Lifetime: loaders can be neither copied nor moved, because their iterators refer to them.
// Errors: UsageError for an empty or unsized dataset and for options out of range, the errors of
// AdaptiveDataLoaderHelper, and any exception that the dataset or `collate` throws.
#pragma once

#include <c10/util/ArrayRef.h>
#include <torch/data/example.h>
#include <torch/data/transforms/stack.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "adaptdl/torch/data_loader_helper.h"
#include "adaptdl/torch/internal/pin_memory.h"
#include "adaptdl/torch/internal/prefetcher.h"
#include "adaptdl/torch/sample_generator.h"
#include "adaptdl/torch/sampler.h"

namespace adaptdl {

// Options of AdaptiveDataLoader.
struct DataLoaderOptions {
  // Number of samples per step across all replicas, >= 1. Each replica receives an equal share, rounded up.
  std::int64_t batch_size = 1;
  // Whether the samples are shuffled again for each pass. If false, they keep the order of the dataset.
  bool shuffle = false;
  // Whether to leave out the last batch of a pass if each replica's part of it is smaller than usual.
  bool drop_last = false;
  // Number of threads that fetch batches ahead of time. If 0, the training thread fetches each batch when it is needed.
  std::int64_t workers = 0;
  // Maximum number of batches fetched ahead, which limits the memory that these batches use. If 0, two per worker.
  std::int64_t prefetch = 0;
  // Whether to put batches into page-locked memory, from which copies to a GPU can overlap with computation:
  // `batch.data.to(device, /*non_blocking=*/true)`. The option applies to tensors in LibTorch's examples, containers,
  // tuples and optionals. For your own type, define `void pin_memory(Batch&)` in its namespace. Without a GPU, the
  // option has no effect.
  bool pin_memory = false;
  // Seed for the order of samples and for sample_generator().
  std::uint64_t seed = 0;
  // Name of the checkpoint state, used instead of a number; see AdaptiveDataLoaderHelper.
  std::string name = {};
};

// A dataset that can be indexed, which AdaptiveDataLoader requires.
template <class T>
concept LoadableDataset = requires(T& dataset, c10::ArrayRef<std::size_t> indices) {
  dataset.get_batch(indices);
  dataset.size();
};

// A type that chooses the next samples: a LibTorch sampler or an ElasticSampler.
template <class T>
concept SamplerLike = std::same_as<std::remove_cvref_t<T>, ElasticSampler> ||
    requires(std::remove_cvref_t<T>& sampler) {
  sampler.next(std::size_t{1});
};

// The default `collate`.
struct StackExamples {
  // Stacks examples into one, like LibTorch's Stack.
  template <class Example>
  requires requires { torch::data::transforms::Stack<Example>{}; }
  auto operator()(std::vector<Example> examples) const {
    return torch::data::transforms::Stack<Example>{}.apply_batch(std::move(examples));
  }
  // Returns anything else unchanged.
  template <class Batch>
  Batch operator()(Batch batch) const {
    return batch;
  }
};

namespace internal {

// The part of a loader's loop that does not depend on the types of its dataset and batches.
class LoaderLoop {
 public:
  // Creates the batch of these samples and stores it in the slot.
  using Fetch = std::function<void(std::size_t worker, c10::ArrayRef<std::size_t> samples, std::size_t slot)>;

  // Returns how many slots a loop needs: one for each batch that is fetched ahead, or one if there are no workers.
  static std::size_t count_slots(const DataLoaderOptions& options) noexcept;

  // Begins a loop. The arguments that are passed by reference must outlive the loop.
  LoaderLoop(AdaptiveDataLoaderHelper& helper, ElasticSampler& sampler, const DataLoaderOptions& options, Fetch fetch);

  // Passes a step boundary, advances to the next batch, and calls `take` with its slot. Returns false after the last
  // batch.
  bool next(const std::function<void(std::size_t slot)>& take);

 private:
  void deal();
  bool refill();
  c10::ArrayRef<std::size_t> samples_of(std::size_t batch) const;
  void fetch(std::size_t worker, std::size_t batch) const;

  AdaptiveDataLoaderHelper& helper_;
  ElasticSampler& sampler_;
  const Fetch fetch_;
  const DataLoaderOptions& options_;
  AdaptiveDataLoaderHelper::Context context_;
  std::vector<std::size_t> samples_;  // samples for this replica until the end of the pass
  std::size_t local_batch_ = 0;       // samples per batch on this replica
  std::size_t batches_ = 0;           // number of batches in samples_
  std::size_t next_ = 0;
  const std::size_t slots_;
  const bool skipped_;
  std::unique_ptr<Prefetcher> prefetcher_;                    // its threads use all members above
  std::optional<AdaptiveDataLoaderHelper::Profile> profile_;  // measures the batch that was handed out
};

// Returns `options`. Throws UsageError if an option is out of range. `copyable`: whether the dataset can be copied.
DataLoaderOptions checked(DataLoaderOptions options, bool copyable);

// Returns the number of batches in a whole pass over `samples` samples on each replica.
std::size_t batches_per_pass(const DataLoaderOptions& options, std::size_t samples);

}  // namespace internal

template <LoadableDataset Dataset, class Collate = StackExamples>
class AdaptiveDataLoader : public AdaptiveDataLoaderMixin {
 private:
  class Loop;

 public:
  // The type of the batches that the dataset's get_batch returns.
  using Fetched = decltype(std::declval<Dataset&>().get_batch(std::declval<c10::ArrayRef<std::size_t>>()));
  // The type of the batches in the loop: fetched batches after `collate`.
  using Batch = std::remove_cvref_t<std::invoke_result_t<Collate&, Fetched>>;

  // Takes ownership of `dataset`, which each worker copies. `collate` is called with the result of the dataset's
  // get_batch; with workers, several threads call it at the same time.
  explicit AdaptiveDataLoader(Dataset dataset, DataLoaderOptions options = {}, Collate collate = {})
      : AdaptiveDataLoaderMixin(
            static_cast<std::size_t>(internal::checked(options, std::copy_constructible<Dataset>).batch_size),
            options.name),
        options_(std::move(options)),
        dataset_(std::move(dataset)),
        collate_(std::move(collate)),
        sampler_(internal::size_of(dataset_.size()), options_.shuffle, options_.seed) {}

  // Custom samplers are not supported, because the loader must deal the samples again when the replicas change. To
  // leave out or repeat samples, use a dataset that does so.
  template <SamplerLike CustomSampler, class... Rest>
  AdaptiveDataLoader(Dataset dataset, CustomSampler&& a_custom_sampler_is_not_supported, Rest&&...) = delete;

  AdaptiveDataLoader(const AdaptiveDataLoader&) = delete;
  AdaptiveDataLoader& operator=(const AdaptiveDataLoader&) = delete;

  // Iterates over the remaining batches of this loop. There are none if the loop was finished before a restart. The
  // loop ends after the last batch, or earlier if the iterator is destroyed.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    Batch& operator*() const noexcept { return *loop_->batch; }
    Batch* operator->() const noexcept { return &*loop_->batch; }
    // Marks the batch as read, passes a step boundary, where the job may exit, and moves to the next batch.
    Iterator& operator++() {
      if (!loop_->next()) loop_.reset();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const noexcept { return !loop_; }

   private:
    friend class AdaptiveDataLoader;
    explicit Iterator(AdaptiveDataLoader& loader) : loop_(std::make_unique<Loop>(loader)) { ++*this; }
    std::unique_ptr<Loop> loop_;
  };

  // Begins a loop. Throws UsageError under the same conditions as AdaptiveDataLoaderHelper::context, and Error if the
  // checkpoint was saved in the middle of a dataset of a different size.
  Iterator begin() {
    if constexpr (std::copy_constructible<Dataset>) {
      copies_.reserve(static_cast<std::size_t>(options_.workers));
      while (copies_.size() < copies_.capacity()) copies_.push_back(dataset_);
    }
    return Iterator(*this);
  }
  std::default_sentinel_t end() const noexcept { return {}; }

  // Returns the number of batches in a whole pass on each replica, at the initial batch size.
  std::size_t size() const { return internal::batches_per_pass(options_, sampler_.dataset_size()); }

  // Returns the loader's own dataset. Workers use copies of it, which are created when the first loop begins.
  Dataset& dataset() noexcept { return dataset_; }
  // Returns the options given to the constructor.
  const DataLoaderOptions& options() const noexcept { return options_; }

 private:
  class Loop {
   public:
    explicit Loop(AdaptiveDataLoader& loader)
        : slots_(internal::LoaderLoop::count_slots(loader.options_)),
          loop_(loader.helper(), loader.sampler_, loader.options_,
                [this, &loader](std::size_t worker, c10::ArrayRef<std::size_t> samples, std::size_t slot) {
                  auto& made = slots_[slot].emplace(loader.collate_(loader.of_worker(worker).get_batch(samples)));
                  if (loader.options_.pin_memory) internal::pin(made);
                }) {}

    bool next() {
      batch.reset();
      return loop_.next([this](std::size_t slot) { batch = std::exchange(slots_[slot], {}); });
    }

    std::optional<Batch> batch;

   private:
    std::vector<std::optional<Batch>> slots_;
    internal::LoaderLoop loop_;
  };

  // Returns the dataset for one thread: the loader's own, or a copy of it.
  Dataset& of_worker(std::size_t worker) { return options_.workers > 0 ? copies_[worker] : dataset_; }

  DataLoaderOptions options_;
  Dataset dataset_;
  Collate collate_;
  ElasticSampler sampler_;
  std::vector<Dataset> copies_;  // one per worker, created when the first loop begins
};

}  // namespace adaptdl
