// The data loader for data sets that cannot be indexed: logs, sockets, archives that are read from front to back.
//
//   AdaptiveIterableLoader loader(Lines("corpus.txt"), {.batch_size = 64});
//   for (int epoch : remaining_epochs_until(3)) {
//     for (auto& batch : loader) { ... }
//   }
//
// Data sets: any type with `reset()`, which goes back to the beginning of its stream, and `get_batch(std::size_t n)`,
// which gives the next n examples as a vector or an optional one: fewer if it likes, and none at the end. So LibTorch's
// StatefulDataset and StreamDataset fit. It may have `skip(std::size_t n)`, which passes over n examples, cheaper than
// reading them, and returns over how many: fewer than n at the end only. A stream that differs from epoch to epoch asks
// current_epoch() in reset().
//
// What is promised. Each replica goes through the whole stream and takes its share: position p, counted from where the
// run began in the stream, belongs to rank p mod K of K replicas. An example is read exactly once in a pass, except
// that up to K - 1 at its end are left out, so that all replicas get equally many (and, where s batches are
// accumulated, up to s more on each). For that the stream must be the same on every replica. If it is not, the loop
// ends on all replicas together, with the first one whose stream does.
//
// Elasticity. The position in the stream is part of the checkpoint. A restart resets the stream and skips to it, on any
// number of replicas.
//
// An epoch is a pass over the stream, or `epoch_samples` of it. With an adaptive batch size it ends by statistical
// progress, for which the number of samples must be known; the stream begins again at its end as often as needed.
//
// Threads: the training thread reads the stream, at most a step ahead, unless `prefetch` is set. Then a thread reads
// further batches while the training thread trains; it alone uses the data set in that time, except for reset(). What
// it throws is thrown in the training thread. Batches are collated by the training thread.
// Errors and lifetime are those of AdaptiveDataLoader; a stream without any example is a UsageError when autoscaled,
// and an empty loop else.
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
  // Samples of a step over all replicas, >= 1. Each replica gets it divided by their number, rounded up.
  std::int64_t batch_size = 1;
  // Samples of an epoch over all replicas, rounded up to a multiple of these; 0: the data set's size(), if it has one
  // that it knows, else what is in the stream.
  std::int64_t epoch_samples = 0;
  // Batches that a thread reads ahead at most; 0: the training thread reads each when it is due.
  std::int64_t prefetch = 0;
  // Whether batches are put into page-locked memory; see DataLoaderOptions.
  bool pin_memory = false;
  // Name of its checkpoint state, in the place of its number; see AdaptiveDataLoaderHelper.
  std::string name = {};
};

// What AdaptiveIterableLoader reads: a data set that is a stream.
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

// What a loader of a stream does whatever the types of its data set and batches.
class StreamLoop {
 public:
  // The stream, and the queue of examples read from it. `read` and `skip` return how many examples there were.
  struct Source {
    std::function<void()> reset;
    std::function<std::size_t(std::size_t n)> skip;
    std::function<std::size_t(std::size_t n)> read;  // to the end of the queue
    std::function<void()> take_back;                 // the last one of the queue
    std::function<std::size_t()> queued;
  };

  // Begins a loop. `epoch_samples`: 0 if not known.
  StreamLoop(AdaptiveDataLoaderHelper& helper, std::size_t epoch_samples, std::size_t prefetch, Source source);
  ~StreamLoop();
  StreamLoop(const StreamLoop&) = delete;
  StreamLoop& operator=(const StreamLoop&) = delete;

  // Goes on to the next batch, after a step boundary: returns how many examples of the queue it takes, 0 if it is none.
  std::size_t next();
  // To be called when those were taken out of the queue.
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
  std::size_t position_ = 0;  // in the stream, of what was read
  bool at_end_ = false;       // nothing is left to read
  std::size_t taken_ = 0;     // by the batch that was handed out
  std::optional<AdaptiveDataLoaderHelper::Profile> profile_;
  std::future<void> reading_;  // ahead: its thread alone uses the source, position_ and at_end_ until it is ready
  std::atomic<bool> enough_{false};
};

// Throws UsageError on options out of range.
IterableLoaderOptions checked(IterableLoaderOptions options);

// The samples of an epoch that options or the data set give; 0: none of them.
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
  // What the data set's get_batch returns.
  using Fetched = std::remove_cvref_t<decltype(std::declval<Dataset&>().get_batch(std::size_t{1}))>;
  // An element of it.
  using Example = typename internal::ExamplesOf<Fetched>::type;
  // What the loop gets: examples after `collate`.
  using Batch = std::remove_cvref_t<std::invoke_result_t<Collate&, std::vector<Example>>>;

  // Owns `dataset`. `collate` is called with a vector of examples.
  explicit AdaptiveIterableLoader(Dataset dataset, IterableLoaderOptions options = {}, Collate collate = {})
      : AdaptiveDataLoaderMixin(static_cast<std::size_t>(internal::checked(options).batch_size), options.name),
        options_(std::move(options)),
        dataset_(std::move(dataset)),
        collate_(std::move(collate)) {}

  AdaptiveIterableLoader(const AdaptiveIterableLoader&) = delete;
  AdaptiveIterableLoader& operator=(const AdaptiveIterableLoader&) = delete;

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
    friend class AdaptiveIterableLoader;
    explicit Iterator(AdaptiveIterableLoader& loader) : loop_(std::make_unique<Loop>(loader)) { ++*this; }
    std::unique_ptr<Loop> loop_;
  };

  // Begins a loop, for which it resets the stream. Throws UsageError as AdaptiveDataLoaderHelper::context does, and if
  // the batch size is adaptive and the samples of an epoch are not known.
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const noexcept { return {}; }

  // The loader's data set.
  Dataset& dataset() noexcept { return dataset_; }
  // As given to the constructor.
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
    // Reads up to n examples, each of which it gives to `use`; returns how many there were.
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
