// The data loader for datasets that cannot be indexed, such as logs, sockets, and archives that are read in order.
//
//   AdaptiveIterableLoader loader(Lines("corpus.txt"), {.batch_size = 64});
//   for (int epoch : remaining_epochs_until(3)) {
//     for (auto& batch : loader) { ... }
//   }
//
// Datasets: any type with `reset()`, which moves back to the beginning of its stream, and `get_batch(std::size_t n)`,
// which returns the next n examples as a vector or an optional vector. get_batch may return fewer than n examples, and
// returns none at the end. LibTorch's StatefulDataset and StreamDataset qualify. The type may also have
// `skip(std::size_t n)`, which skips n examples faster than get_batch would read them, and returns how many it skipped
// (fewer than n only at the end). If the stream differs from epoch to epoch, reset() can call current_epoch().
//
// Guarantees: each replica goes through the whole stream and keeps its share. With K replicas, the example at position
// p, counted from the position at which this run began, belongs to rank p mod K. Each example is read exactly once in a
// pass, except that up to K - 1 examples at the end are left out, so that all replicas receive the same number of
// examples (if s batches are accumulated, up to s more examples are left out on each replica). These guarantees require
// the stream to be the same on every replica. If it is not, the loop ends on all replicas when the first of them
// reaches the end of its stream.
//
// Elasticity: the position in the stream is part of the checkpoint. After a restart, on any number of replicas, the
// loader resets the stream and skips to that position.
//
// An epoch is a pass over the stream, or over its first `epoch_samples` examples. With an adaptive batch size, an epoch
// ends after enough statistical progress: the number of samples must be known, and the stream is repeated as often as
// necessary.
//
// Threads: by default, the training thread reads the stream, at most one step ahead. If `prefetch` is set, another
// thread reads more batches while the training thread is training. The two threads never use the dataset at the same
// time, and only the training thread calls reset() and collates batches. Exceptions in the reading thread are rethrown
// in the training thread.
// Errors and lifetime: same as for AdaptiveDataLoader. An empty stream results in an empty loop or, if the batch size
// is adaptive, in a UsageError.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/data_loader_helper.h"

namespace adaptdl {

// Options of AdaptiveIterableLoader.
struct IterableLoaderOptions {
  // Number of samples per step across all replicas, >= 1. Each replica receives an equal share, rounded up.
  std::int64_t batch_size = 1;
  // Number of samples per epoch across all replicas, rounded up to a multiple of the number of replicas. 0 means the
  // dataset's size(), or the whole stream if the dataset does not know its size.
  std::int64_t epoch_samples = 0;
  // Maximum number of batches that a thread reads ahead. If 0, the training thread reads each batch when it is needed.
  std::int64_t prefetch = 0;
  // Whether to put batches into page-locked memory; see DataLoaderOptions.
  bool pin_memory = false;
  // Name of the checkpoint state, used instead of a number; see AdaptiveDataLoaderHelper.
  std::string name = {};
};

// A dataset that is read as a stream, which AdaptiveIterableLoader requires.
template <class T>
concept IterableDataset = requires(T& dataset, std::size_t n) {
  dataset.reset();
  dataset.get_batch(n);
};

namespace internal {

template <class Batch>
struct ExamplesOf;
template <class Example>
struct ExamplesOf<std::vector<Example>> {
  using type = Example;
};
template <class Optional>
requires requires(Optional& optional) { optional.has_value(); }
struct ExamplesOf<Optional> : ExamplesOf<std::remove_cvref_t<decltype(*std::declval<Optional&>())>> {};

// The part of a stream loader's loop that does not depend on the types of its dataset and batches.
class StreamLoop {
 public:
  // The stream, and the queue of examples read from it. `read` and `skip` return how many examples they read or
  // skipped.
  struct Source {
    std::function<void()> reset;
    std::function<std::size_t(std::size_t n)> skip;
    std::function<std::size_t(std::size_t n)> read;  // appends to the queue
    std::function<void()> take_back;                 // removes the last example from the queue
    std::function<std::size_t()> queued;
  };

  // Begins a loop. `epoch_samples` is 0 if it is not known.
  StreamLoop(AdaptiveDataLoaderHelper& helper, std::size_t epoch_samples, std::size_t prefetch, Source source);
  ~StreamLoop();
  StreamLoop(const StreamLoop&) = delete;
  StreamLoop& operator=(const StreamLoop&) = delete;

  // Passes a step boundary and advances to the next batch. Returns the number of examples in the batch, which are at
  // the front of the queue, or 0 if there are no more batches.
  std::size_t next();
  // Must be called after these examples have been removed from the queue.
  void read_ahead();

 private:
  void lay_out();
  void rewind();
  void stop_reading_ahead();
  void fill(std::size_t wanted);
  bool read_round();
  std::size_t batches_of_step() const;
  bool can_begin();
  std::size_t next_of_pass();
  std::size_t next_of_nested();
  std::size_t next_of_many();

  AdaptiveDataLoaderHelper& helper_;
  const Source source_;
  const std::size_t epoch_samples_;
  const std::size_t prefetch_;
  AdaptiveDataLoaderHelper::Context context_;
  const bool skipped_;
  std::size_t rank_ = 0, replicas_ = 1;
  std::size_t local_bsz_ = 0;
  std::size_t position_ = 0;  // position up to which the stream has been read
  bool at_end_ = false;       // whether nothing is left to read
  std::size_t taken_ = 0;     // examples in the batch that was handed out
  std::optional<AdaptiveDataLoaderHelper::Profile> profile_;
  std::future<void> reading_;  // until it is ready, only its thread uses source_, position_ and at_end_
  std::atomic<bool> enough_{false};
};

// Returns `options`. Throws UsageError if an option is out of range.
IterableLoaderOptions checked(IterableLoaderOptions options);

// Returns the number of samples per epoch that the options or the dataset specify, or 0 if neither does.
template <class Dataset>
std::size_t epoch_samples(const IterableLoaderOptions& options, const Dataset& dataset) {
  if (options.epoch_samples > 0) return static_cast<std::size_t>(options.epoch_samples);
  if constexpr (requires { dataset.size(); }) {
    const auto size = dataset.size();
    if constexpr (std::convertible_to<decltype(size), std::size_t>) {
      return static_cast<std::size_t>(size);
    } else {
      return size ? static_cast<std::size_t>(*size) : 0;
    }
  }
  return 0;
}

}  // namespace internal

template <IterableDataset Dataset, class Collate = StackExamples>
class AdaptiveIterableLoader : public AdaptiveDataLoaderMixin {
 private:
  class Loop;

 public:
  // The type that the dataset's get_batch returns.
  using Fetched = std::remove_cvref_t<decltype(std::declval<Dataset&>().get_batch(std::size_t{1}))>;
  // The type of the examples in it.
  using Example = typename internal::ExamplesOf<Fetched>::type;
  // The type of the batches in the loop: vectors of examples after `collate`.
  using Batch = std::remove_cvref_t<std::invoke_result_t<Collate&, std::vector<Example>>>;

  // Takes ownership of `dataset`. `collate` is called with a vector of examples.
  explicit AdaptiveIterableLoader(Dataset dataset, IterableLoaderOptions options = {}, Collate collate = {})
      : AdaptiveDataLoaderMixin(static_cast<std::size_t>(internal::checked(options).batch_size), options.name),
        options_(std::move(options)),
        dataset_(std::move(dataset)),
        collate_(std::move(collate)) {}

  AdaptiveIterableLoader(const AdaptiveIterableLoader&) = delete;
  AdaptiveIterableLoader& operator=(const AdaptiveIterableLoader&) = delete;

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
    friend class AdaptiveIterableLoader;
    explicit Iterator(AdaptiveIterableLoader& loader) : loop_(std::make_unique<Loop>(loader)) { ++*this; }
    std::unique_ptr<Loop> loop_;
  };

  // Begins a loop, and resets the stream for it. Throws UsageError under the same conditions as
  // AdaptiveDataLoaderHelper::context, and if the batch size is adaptive but the number of samples per epoch is not
  // known.
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const noexcept { return {}; }

  // Returns the loader's dataset.
  Dataset& dataset() noexcept { return dataset_; }
  // Returns the options given to the constructor.
  const IterableLoaderOptions& options() const noexcept { return options_; }

 private:
  class Loop {
   public:
    explicit Loop(AdaptiveIterableLoader& loader)
        : loader_(loader),
          loop_(
              loader.helper(), internal::epoch_samples(loader.options_, loader.dataset_),
              static_cast<std::size_t>(loader.options_.prefetch),
              {.reset = [this] { queue_.clear(), loader_.dataset_.reset(); },
               .skip = [this](std::size_t n) { return skip(n); },
               .read =
                   [this](std::size_t n) { return pass_over(n, [&](Example&& e) { queue_.push_back(std::move(e)); }); },
               .take_back = [this] { queue_.pop_back(); },
               .queued = [this] { return queue_.size(); }}) {}

    bool next() {
      batch.reset();
      const auto count = static_cast<std::ptrdiff_t>(loop_.next());
      if (count == 0) return false;
      const auto first = std::make_move_iterator(queue_.begin());
      batch.emplace(loader_.collate_(std::vector<Example>(first, first + count)));
      if (loader_.options_.pin_memory) internal::pin(*batch);
      queue_.erase(queue_.begin(), queue_.begin() + count);
      loop_.read_ahead();
      return true;
    }

    std::optional<Batch> batch;

   private:
    // Reads up to n examples and passes each to `use`. Returns how many it read.
    template <class Use>
    std::size_t pass_over(std::size_t n, Use use) {
      std::size_t count = 0;
      while (count < n) {
        auto fetched = loader_.dataset_.get_batch(n - count);
        auto* const examples = [&]() -> std::vector<Example>* {
          if constexpr (std::same_as<Fetched, std::vector<Example>>) {
            return &fetched;
          } else {
            return fetched.has_value() ? &*fetched : nullptr;
          }
        }();
        if (examples == nullptr || examples->empty()) break;
        for (auto& example : *examples) use(std::move(example));
        count += examples->size();
      }
      return count;
    }

    std::size_t skip(std::size_t n) {
      if constexpr (requires { loader_.dataset_.skip(n); }) {
        return n == 0 ? 0 : static_cast<std::size_t>(loader_.dataset_.skip(n));
      } else {
        return pass_over(n, [](Example&&) {});
      }
    }

    AdaptiveIterableLoader& loader_;
    std::deque<Example> queue_;
    internal::StreamLoop loop_;
  };

  IterableLoaderOptions options_;
  Dataset dataset_;
  Collate collate_;
};

}  // namespace adaptdl
