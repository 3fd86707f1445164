// Tests loaders of datasets that cannot be indexed: how a stream is shared, where it ends, and how it resumes.
#include "adaptdl/torch/iterable_loader.h"

#include <fmt/format.h>
#include <torch/data/datasets/stateful.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "adaptdl/metrics.h"
#include "adaptdl/torch/epoch.h"
#include "elastic_job.h"
#include "loop/batch_size_choice.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

#include "error_of.h"

namespace iterable_loader_test {

namespace {

namespace metrics = adaptdl::metrics;
using adaptdl::AdaptiveIterableLoader;
using adaptdl::IterableLoaderOptions;
using adaptdl::remaining_epochs_until;
using adaptdl::UsageError;
using testing::ElasticJob;
using Batch = std::vector<std::size_t>;
using ::testing::error_of;
using ::testing::says;

constexpr int kCheckpointed = 143;

// Returns the numbers 0, 1, ..., size - 1, at most three at a time.
struct Counter {
  explicit Counter(std::size_t numbers) : size_(numbers) {}
  void reset() { next = 0; }
  Batch get_batch(std::size_t n) {
    Batch batch;
    while (batch.size() < std::min<std::size_t>(n, 3) && next < size_) batch.push_back(next++);
    return batch;
  }
  std::size_t size_, next = 0;
};

// A Counter that can skip numbers, and counts those that are read.
struct Skipping : Counter {
  using Counter::Counter;
  Batch get_batch(std::size_t n) {
    auto batch = Counter::get_batch(n);
    read += batch.size();
    return batch;
  }
  std::size_t skip(std::size_t n) {
    const auto skipped = std::min(n, size_ - next);
    next += skipped;
    return skipped;
  }
  std::size_t read = 0;
};

// A dataset of LibTorch's own class, whose size is known.
struct Stateful : torch::data::datasets::StatefulDataset<Stateful, Batch> {
  explicit Stateful(std::size_t size) : counter(size) {}
  torch::optional<Batch> get_batch(std::size_t n) override {
    auto batch = counter.get_batch(n);
    if (batch.empty()) return {};
    return batch;
  }
  torch::optional<std::size_t> size() const override { return counter.size_; }
  void reset() override { counter.reset(); }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  Counter counter;
};

template <class Loader>
std::vector<Batch> read_all(Loader& loader) {
  std::vector<Batch> batches;
  for (auto& batch : loader) batches.push_back(batch);
  return batches;
}

std::string text_of(const std::vector<Batch>& batches) {
  std::string text;
  for (const auto& batch : batches) {
    for (const auto number : batch) text += fmt::format("{} ", number);
    text += "| ";
  }
  return text;
}

// Returns how often each number was noted.
std::map<std::size_t, int> times_of(const std::vector<std::string>& notes) {
  std::map<std::size_t, int> times;
  for (const auto& note : notes) {
    std::istringstream text(note);
    for (std::string word; text >> word;) {
      if (word != "|") ++times[std::stoul(word)];
    }
  }
  return times;
}

// Checks which numbers of `Dataset` each replica gets in a full epoch.
template <class Dataset>
void check_shares(std::size_t size, int replicas, std::int64_t batch_size) {
  const ElasticJob job;
  job.run_to(0, replicas, [&](int rank) {
    AdaptiveIterableLoader loader(
        Dataset(size), {.batch_size = batch_size, .prefetch = (replicas + rank) % 2 * 2, .pin_memory = true});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(2)) {
      const auto batches = read_all(loader);
      std::string sizes;
      for (const auto& batch : batches) {
        sizes += fmt::format("{} ", batch.size());
        for (const auto number : batch)
          EXPECT(number % static_cast<std::size_t>(replicas) == static_cast<std::size_t>(rank));
      }
      for (const auto& other : adaptdl::collective::world().allgather(sizes)) EXPECT(other == sizes);
      if (epoch == 1) job.note(text_of(batches));
    }
  });
  const auto times = times_of(job.notes());
  const auto dealt = size / static_cast<std::size_t>(replicas) * static_cast<std::size_t>(replicas);
  REQUIRE(times.size() == dealt);
  for (std::size_t number = 0; number < dealt; ++number) CHECK(times.at(number) == 1);
}

}  // namespace

TEST_CASE("each example is read once in equal batches on all replicas, except for a remainder" *
          doctest::test_suite("slow")) {
  for (const std::size_t size : {1, 2, 11, 24, 25}) {
    for (const int replicas : {1, 2, 3}) {
      CAPTURE(size);
      CAPTURE(replicas);
      check_shares<Counter>(size, replicas, 8);
      check_shares<Skipping>(size, replicas, 6);
    }
  }
  check_shares<Stateful>(23, 2, 4);
  check_shares<Stateful>(0, 2, 4);
}

TEST_CASE("examples of other replicas are skipped if possible, and only one step is read ahead") {
  ElasticJob().run_to(0, 2, [](int) {
    AdaptiveIterableLoader loader(Skipping(1000), {.batch_size = 10});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      std::size_t given = 0;
      for (auto& batch : loader) {
        given += batch.size();
        EXPECT(loader.dataset().read <= given + 6);
      }
      EXPECT(given == 500 && loader.dataset().read == 500);
    }
  });
}

TEST_CASE("examples are collated to batches of a custom type") {
  ElasticJob().run_to(0, 1, [](int) {
    AdaptiveIterableLoader sums(Counter(10), IterableLoaderOptions{.batch_size = 4}, [](const Batch& batch) {
      std::size_t sum = 0;
      for (const auto number : batch) sum += number;
      return sum;
    });
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      std::vector<std::size_t> got;
      for (auto& sum : sums) got.push_back(sum);
      EXPECT(got == std::vector<std::size_t>{0 + 1 + 2 + 3, 4 + 5 + 6 + 7, 8 + 9});
    }
  });
}

TEST_CASE("streams of different lengths end on all replicas with the shortest one") {
  const ElasticJob job;
  job.run_to(0, 3, [&](int rank) {
    // The shares of `loader` have 8 examples on rank 1 and more on the others; `empty` has none on one rank.
    AdaptiveIterableLoader loader(Counter(rank == 1 ? 25 : 300), {.batch_size = 9});
    AdaptiveIterableLoader empty(Counter(rank == 2 ? 0 : 30), {.batch_size = 9});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(2)) {
      EXPECT(read_all(loader).size() == 3);
      EXPECT(read_all(empty).empty());
    }
  });
}

TEST_CASE("random restarts on 1 to 4 replicas repeat no example and lose only a remainder") {
  constexpr std::size_t kSize = 203;
  for (unsigned seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    const ElasticJob job;
    std::mt19937 random(seed);
    bool finished = false;
    int replicas = 0;
    for (int run = 0; !finished; ++run) {
      REQUIRE(run < 60);
      replicas = 1 + run % 4;
      const auto steps = random() % 7;
      const auto codes = job.run(replicas, [&](int rank) {
        AdaptiveIterableLoader loader(Skipping(kSize), {.batch_size = 12});
        std::size_t step = 0;
        for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
          for (auto& batch : loader) {
            if (step++ == steps && rank == 0) kill(getpid(), SIGTERM);
            job.note(text_of({batch}));
          }
        }
      });
      finished = codes == std::vector<int>(static_cast<std::size_t>(replicas), 0);
      if (!finished) REQUIRE(codes == std::vector<int>(static_cast<std::size_t>(replicas), kCheckpointed));
    }
    const auto times = times_of(job.notes());
    CHECK(times.size() > kSize - static_cast<std::size_t>(replicas));
    for (const auto& [number, count] : times) CHECK(count == 1);
  }
}

TEST_CASE("a fixed total batch size is accumulated in complete steps") {
  for (const int replicas : {1, 2, 3}) {
    ElasticJob().run_to(0, replicas, [&](int) {
      AdaptiveIterableLoader loader(Counter(100), {.batch_size = 24});
      loader.autoscale_batch_size(24, {.max = 4}, true);
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        const auto parts = static_cast<std::size_t>(24 / 4 / replicas);
        std::size_t batches = 0, samples = 0;
        for (auto& batch : loader) {
          EXPECT(loader.helper().is_optim_step() == (++batches % parts == 0));
          samples += batch.size();
        }
        EXPECT(batches % parts == 0);
        EXPECT(samples <= 100 / static_cast<std::size_t>(replicas) &&
               samples + parts > 100 / static_cast<std::size_t>(replicas));
      }
    });
  }
}

TEST_CASE("the batch size changes within a stream, which repeats until the epoch's progress is reached") {
  const ElasticJob job;
  for (const int code : {kCheckpointed, 0}) {
    job.run_to(code, 2, [&](int rank) {
      AdaptiveIterableLoader loader(Counter(101), {.batch_size = 4, .epoch_samples = 160});
      loader.autoscale_batch_size(64, {}, true);
      adaptdl::internal::set_batch_size_decider([](std::uint64_t step) -> std::optional<std::pair<std::size_t, int>> {
        if (step == 4) return std::pair{std::size_t{7}, 2};
        return {};
      });
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        for (auto& batch : loader) {
          const auto& helper = loader.helper();
          EXPECT(batch.size() <= helper.current_local_bsz());
          if (helper.is_optim_step()) metrics::set_progress("model", metrics::progress() + 2);
          if (rank == 0) job.note(fmt::format("{}:{}", helper.current_local_bsz(), text_of({batch})));
          // Interrupts the job in the first batch of a step of the second pass.
          if (code != 0 && *helper.current_index() > 110 && helper.accumulated() == 0) kill(getpid(), SIGTERM);
        }
      }
    });
  }
  // Rank 0 has the even numbers: 50 examples per pass. The progress of 40 takes 20 steps: 5 of 2 examples each, and
  // 15 of 3 x 7.
  std::vector<std::size_t> read;
  std::size_t batches = 0;
  for (const auto& note : job.notes()) {
    std::istringstream text(note.substr(note.find(':') + 1));
    for (std::string word; text >> word;) {
      if (word != "|") read.push_back(std::stoul(word));
    }
    CHECK(note.starts_with(batches++ < 5 ? "2:" : "7:"));
  }
  CHECK(batches == 5 + 15 * 3);
  CHECK(read.size() > 250);
  for (std::size_t i = 0; i < read.size(); ++i) CHECK(read[i] == 2 * (i % 50));
}

TEST_CASE("epoch_samples limits an epoch of an endless stream") {
  ElasticJob().run_to(0, 3, [](int) {
    AdaptiveIterableLoader loader(Skipping(1u << 30), {.batch_size = 9, .epoch_samples = 100});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(2)) {
      std::size_t samples = 0;
      for (auto& batch : loader) samples += batch.size();
      EXPECT(samples == 34);
    }
  });
}

TEST_CASE("a thread prefetches batches up to the limit, and its errors reach the training loop") {
  // Counts the numbers that are read, and throws at the number 30.
  struct Watched : Counter {
    Watched() : Counter(40) {}
    Batch get_batch(std::size_t n) {
      auto batch = Counter::get_batch(n);
      if (std::ranges::count(batch, 30)) throw std::runtime_error("30 is bad");
      *read += batch.size();
      return batch;
    }
    std::shared_ptr<std::atomic<std::size_t>> read = std::make_shared<std::atomic<std::size_t>>(0);
  };
  ElasticJob().run_to(0, 1, [](int) {
    AdaptiveIterableLoader loader(Watched(), {.batch_size = 4, .prefetch = 3});
    std::size_t samples = 0;
    const auto error = error_of<std::runtime_error>([&] {
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        for (auto& batch : loader) {
          samples += batch.size();
          const auto ahead = std::min<std::size_t>(samples + 12, 28);
          for (int i = 0; i < 3000 && *loader.dataset().read < ahead; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          EXPECT(*loader.dataset().read >= ahead);
          EXPECT(*loader.dataset().read <= samples + 4 * 5 + 3);
        }
      }
    });
    EXPECT(says(error, "30 is bad"));
    EXPECT(samples >= 12);
  });
}

TEST_CASE("invalid options and empty streams are rejected") {
  ElasticJob().run_to(0, 1, [](int) {
    using Loader = AdaptiveIterableLoader<Counter>;
    EXPECT(says(error_of<UsageError>([] { Loader(Counter(4), {.batch_size = 0}); }),
                "batch_size must be at least 1 (samples across all replicas), got 0"));
    EXPECT(
        says(error_of<UsageError>([] { Loader(Counter(4), {.epoch_samples = -1}); }),
             "epoch_samples must be at least 0 (samples across all replicas; 0 for the length of the stream), got -1"));
    EXPECT(says(error_of<UsageError>([] { Loader(Counter(4), {.prefetch = -1}); }), "prefetch must be"));
    AdaptiveIterableLoader unsized(Counter(4), {.batch_size = 2, .name = "unsized"});
    unsized.autoscale_batch_size(4);
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      const auto error = error_of<UsageError>([&] { read_all(unsized); });
      EXPECT(says(error, "'adaptdl-dataloader-epochnone-unsized'") && says(error, "epoch_samples"));
    }
  });
  ElasticJob().run_to(0, 1, [](int) {
    AdaptiveIterableLoader empty(Counter(0), {.batch_size = 2, .epoch_samples = 10});
    empty.autoscale_batch_size(4);
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1))
      EXPECT(says(error_of<UsageError>([&] { read_all(empty); }), "fewer samples than there are replicas (1)"));
  });
}

}  // namespace iterable_loader_test
