// The data loader of an elastic job: batches of a data set, shared among the replicas, over restarts on any number of
// them.
//
//   AdaptiveDataLoader loader(MNIST("data"), {.batch_size = 64, .shuffle = true, .workers = 2});
//   for (int epoch : remaining_epochs_until(30)) {
//     for (auto& batch : loader) { ... batch.data, batch.target ... }
//   }
//
// What differs from LibTorch's:
// - `batch_size` is the total over all replicas; each gets its part of every batch, and all get equally many batches.
// - It deals the samples itself (sampler.h has the order and what is promised), so a custom sampler is refused.
// - It is iterated inside an epoch loop; one for evaluation may be iterated inside the loop of another. Before each
// batch the job may checkpoint and exit (see
//   AdaptiveDataLoaderHelper::step_boundary); restarted, it skips the loops of the epoch that were finished, and goes
//   on in the one that was interrupted, at the sample where it was.
// - A `break` counts the loop as finished. So must all replicas do, at the same batch.
// - With autoscale_batch_size the total is chosen by goodput while the loop runs, and the loop ends by statistical
//   progress: it may read the data several times, or end in the middle of them (docs/adaptive-training.md).
//
// Data sets: any type with LibTorch's `get_batch(c10::ArrayRef<size_t>)` and `size()`: torch::data::datasets::MNIST and
// TensorDataset, a class derived from Dataset, a data set with transforms. Batches are what `get_batch` returns, put
// through `collate`, which by default stacks a vector of examples to one example, as LibTorch's Stack does, and leaves
// everything else as it is.
//
// Threads: with `workers`, that many threads fetch and collate the next batches while the training thread trains; each
// uses a copy of the data set of its own, as in LibTorch, and all of them the same `collate`. What they throw is thrown
// in the training thread, at the batch it belongs to. Without workers, the training thread does it all between two
// batches.
//
// Random numbers: neither dealing nor prefetching touches LibTorch's default generator; a data set draws from
// sample_generator().
//
// Lifetime: loaders can neither be copied nor moved, for their iterators refer to them.
// Errors, beside those of AdaptiveDataLoaderHelper: UsageError on an empty or unsized data set and options out of
// range; whatever the data set or `collate` throws.
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
  // Samples of a step over all replicas, >= 1. Each replica gets it divided by their number, rounded up.
  std::int64_t batch_size = 1;
  // Whether the order of samples differs from pass to pass, or is always that of the data set.
  bool shuffle = false;
  // Whether the last batch of a pass is left out if it is short on each replica.
  bool drop_last = false;
  // Threads that fetch batches ahead; 0: none, the training thread fetches each when it is due.
  std::int64_t workers = 0;
  // Batches fetched ahead at most, which bounds the memory they take; 0: two a worker.
  std::int64_t prefetch = 0;
  // Whether batches are put into page-locked memory, from which copies to a GPU run beside computations:
  // `batch.data.to(device, /*non_blocking=*/true)`. Applies to tensors in LibTorch's examples, containers, tuples and
  // optionals; for a type of yours, define `void pin_memory(Batch&)` in its namespace. No effect without a GPU.
  bool pin_memory = false;
  // Of the order of samples and of sample_generator().
  std::uint64_t seed = 0;
  // Name of its checkpoint state, in the place of its number; see AdaptiveDataLoaderHelper.
  std::string name = {};
};

// What AdaptiveDataLoader reads: a data set that can be indexed.
template <class T>
concept LoadableDataset = requires(T& dataset, c10::ArrayRef<std::size_t> indices) {
  dataset.get_batch(indices);
  dataset.size();
};

// Something that says which samples come next: LibTorch's samplers, or one of ours.
template <class T>
concept SamplerLike = std::same_as<std::remove_cvref_t<T>, ElasticSampler> ||
    requires(std::remove_cvref_t<T>& sampler) {
  sampler.next(std::size_t{1});
};

// The default collate.
struct StackExamples {
  // Examples, stacked to one as LibTorch's Stack does.
  template <class Example>
  requires requires { torch::data::transforms::Stack<Example>{}; }
  auto operator()(std::vector<Example> examples) const {
    return torch::data::transforms::Stack<Example>{}.apply_batch(std::move(examples));
  }
  // Anything else, as it is.
  template <class Batch>
  Batch operator()(Batch batch) const {
    return batch;
  }
};

namespace internal {

// What a loader does whatever the types of its data set and batches.
class LoaderLoop {
 public:
  // Makes the batch of these samples, and keeps it in the slot.
  using Fetch = std::function<void(std::size_t worker, c10::ArrayRef<std::size_t> samples, std::size_t slot)>;

  // How many slots a loop needs: one for each batch ahead.
  static std::size_t count_slots(const DataLoaderOptions& options) noexcept;

  // Begins a loop. All that it is given by reference outlives it.
  LoaderLoop(AdaptiveDataLoaderHelper& helper, ElasticSampler& sampler, const DataLoaderOptions& options, Fetch fetch);

  // Goes on to the next batch, after a step boundary, and calls `take` with the slot that it is in. False if there is
  // none.
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
  std::vector<std::size_t> samples_;  // that this replica reads until the end of the pass
  std::size_t local_batch_ = 0;       // samples of a batch
  std::size_t batches_ = 0;           // in samples_
  std::size_t next_ = 0;
  const std::size_t slots_;
  const bool skipped_;
  std::unique_ptr<Prefetcher> prefetcher_;                    // its threads use all of the above
  std::optional<AdaptiveDataLoaderHelper::Profile> profile_;  // of the batch that was handed out
};

// Throws UsageError on options out of range. `copyable`: whether the data set can be copied.
DataLoaderOptions checked(DataLoaderOptions options, bool copyable);

// Batches of a whole pass over `samples` on each replica.
std::size_t batches_per_pass(const DataLoaderOptions& options, std::size_t samples);

}  // namespace internal

template <LoadableDataset Dataset, class Collate = StackExamples>
class AdaptiveDataLoader : public AdaptiveDataLoaderMixin {
 private:
  class Loop;

 public:
  // What the data set's get_batch returns.
  using Fetched = decltype(std::declval<Dataset&>().get_batch(std::declval<c10::ArrayRef<std::size_t>>()));
  // What the loop gets: the fetched examples after `collate`.
  using Batch = std::remove_cvref_t<std::invoke_result_t<Collate&, Fetched>>;

  // Owns `dataset`, which workers copy. `collate` is called with what the data set's get_batch returns; with workers,
  // by several threads at the same time.
  explicit AdaptiveDataLoader(Dataset dataset, DataLoaderOptions options = {}, Collate collate = {})
      : AdaptiveDataLoaderMixin(
            static_cast<std::size_t>(internal::checked(options, std::copy_constructible<Dataset>).batch_size),
            options.name),
        options_(std::move(options)),
        dataset_(std::move(dataset)),
        collate_(std::move(collate)),
        sampler_(internal::size_of(dataset_.size()), options_.shuffle, options_.seed) {}

  // Not supported: the loader deals the samples itself, for it must re-deal them when the replicas change. To leave out
  // some samples or repeat others, give it a data set that does so.
  template <SamplerLike CustomSampler, class... Rest>
  AdaptiveDataLoader(Dataset dataset, CustomSampler&& a_custom_sampler_is_not_supported, Rest&&...) = delete;

  AdaptiveDataLoader(const AdaptiveDataLoader&) = delete;
  AdaptiveDataLoader& operator=(const AdaptiveDataLoader&) = delete;

  // The batches that are left of this loop; none if it was finished before a restart. The loop ends with its iterator.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    Batch& operator*() const noexcept { return *loop_->batch; }
    Batch* operator->() const noexcept { return &*loop_->batch; }
    // Counts the batch as read, and gets the next one after a step boundary, where the job may exit.
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

  // Begins a loop. Throws UsageError as AdaptiveDataLoaderHelper::context does, and Error if the checkpoint was taken
  // in the middle of a data set of another size.
  Iterator begin() {
    if constexpr (std::copy_constructible<Dataset>) {
      copies_.reserve(static_cast<std::size_t>(options_.workers));
      while (copies_.size() < copies_.capacity()) copies_.push_back(dataset_);
    }
    return Iterator(*this);
  }
  std::default_sentinel_t end() const noexcept { return {}; }

  // Batches of a whole pass on each replica, at the initial batch size.
  std::size_t size() const { return internal::batches_per_pass(options_, sampler_.dataset_size()); }

  // The loader's own data set; workers have copies of it, made when the first loop begins.
  Dataset& dataset() noexcept { return dataset_; }
  // As given to the constructor.
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

  // The data set for one thread: the loader's own, or a copy of it.
  Dataset& of_worker(std::size_t worker) { return options_.workers > 0 ? copies_[worker] : dataset_; }

  DataLoaderOptions options_;
  Dataset dataset_;
  Collate collate_;
  ElasticSampler sampler_;
  std::vector<Dataset> copies_;  // one a worker, made when the first loop begins
};

}  // namespace adaptdl
