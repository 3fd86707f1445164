#include "adaptdl/torch/data_loader.h"

#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "adaptdl/torch/epoch.h"
#include "elastic_job.h"
#include "numbers.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

#include "error_of.h"

namespace data_loader_test {

namespace {

using namespace std::chrono_literals;
using adaptdl::AdaptiveDataLoader;
using adaptdl::AdaptiveDataLoaderHelper;
using adaptdl::current_dataloader;
using adaptdl::DataLoaderOptions;
using adaptdl::ElasticSampler;
using adaptdl::Error;
using adaptdl::remaining_epochs_until;
using adaptdl::UsageError;
using testing::ElasticJob;
using testing::Numbers;
using testing::samples_of;
using Samples = std::vector<std::int64_t>;
using ::testing::error_of;
using ::testing::says;

template <class Loader>
Samples read_all(Loader& loader) {
  Samples samples;
  for (auto& batch : loader) {
    for (const auto sample : samples_of(batch)) samples.push_back(sample);
  }
  return samples;
}

// A custom data set, which is not derived from LibTorch's classes and cannot be copied.
struct Words {
  Words() = default;
  Words(Words&&) = default;
  std::vector<std::string> get_batch(c10::ArrayRef<std::size_t> indices) const {
    std::vector<std::string> words;
    for (const auto index : indices) words.push_back("word" + std::to_string(index));
    return words;
  }
  std::size_t size() const { return 4; }
};

// Counts the batches fetched by all copies, takes `delay` for each batch, and throws at sample `bad`.
struct Watched : Numbers {
  Watched(std::size_t size, std::chrono::milliseconds time, std::size_t bad_sample)
      : Numbers(size), delay(time), bad(bad_sample) {}
  std::vector<torch::data::Example<>> get_batch(c10::ArrayRef<std::size_t> indices) override {
    ++*fetched;
    std::this_thread::sleep_for(delay);
    for (const auto index : indices) {
      if (index == bad) throw std::runtime_error("sample " + std::to_string(index) + " is bad");
    }
    return Numbers::get_batch(indices);
  }
  std::shared_ptr<std::atomic<int>> fetched = std::make_shared<std::atomic<int>>(0);
  std::chrono::milliseconds delay;
  std::size_t bad;
};

// Custom samplers do not compile.
using Loader = AdaptiveDataLoader<Numbers>;
static_assert(std::is_constructible_v<Loader, Numbers, DataLoaderOptions>);
static_assert(!std::is_constructible_v<Loader, Numbers, torch::data::samplers::SequentialSampler>);
static_assert(!std::is_constructible_v<Loader, Numbers, torch::data::samplers::SequentialSampler, DataLoaderOptions>);
static_assert(!std::is_constructible_v<Loader, Numbers, ElasticSampler&>);

}  // namespace

TEST_CASE("batch_size is the total over all replicas, and samples are dealt in turn") {
  const ElasticJob job;
  job.run_to(0, 2, [](int rank) {
    Loader loader(Numbers(10), {.batch_size = 4});
    EXPECT(loader.size() == 3);
    EXPECT(loader.helper().name() == "adaptdl-dataloader-epochnone-0");
    for ([[maybe_unused]] int epoch : remaining_epochs_until(2)) {
      std::vector<Samples> batches;
      EXPECT(current_dataloader() == nullptr);
      for (auto& batch : loader) {
        EXPECT(current_dataloader() == &loader.helper());
        EXPECT(loader.helper().current_index() == 4 * batches.size());
        EXPECT(loader.helper().current_local_bsz() == 2);
        EXPECT(loader.helper().current_batch_size() == 4);
        EXPECT(loader.helper().is_optim_step());
        batches.push_back(samples_of(batch));
        EXPECT(batch.target.equal(2 * batch.data));
      }
      EXPECT(current_dataloader() == nullptr);
      EXPECT(!loader.helper().current_index());
      EXPECT(batches ==
             (rank == 0 ? std::vector<Samples>{{0, 2}, {4, 6}, {8}} : std::vector<Samples>{{1, 3}, {5, 7}, {9}}));
    }
  });
}

TEST_CASE("all replicas get the same number of batches, with and without drop_last") {
  const ElasticJob job;
  for (int replicas = 1; replicas <= 4; ++replicas) {
    job.run_to(0, replicas, [&](int) {
      std::mt19937 random(17);  // with the same numbers on every replica
      for ([[maybe_unused]] int epoch : remaining_epochs_until(60)) {
        const auto size = 1 + random() % 50;
        const auto batch_size = static_cast<std::int64_t>(1 + random() % 12);
        const bool drop_last = random() % 2 == 0;
        const auto stop_at = random() % 8;  // an exception leaves the loop here, and the next loop continues
        Loader loader(Numbers(size), {.batch_size = batch_size, .shuffle = true, .drop_last = drop_last});
        std::size_t batches = 0;
        const auto loop = [&](std::size_t limit) {
          for (auto& batch : loader) {
            EXPECT(batch.data.numel() >= 1);
            EXPECT(!drop_last || batch.data.numel() == static_cast<std::int64_t>(loader.helper().current_local_bsz()));
            if (batches == limit) throw std::runtime_error("out of luck");
            ++batches;
          }
        };
        const bool left = !error_of<std::runtime_error>([&] { loop(stop_at); }).empty();
        if (left) loop(1000);
        for (const auto& other : adaptdl::collective::world().allgather(std::to_string(batches)))
          EXPECT(other == std::to_string(batches));
        EXPECT(batches == loader.size());
      }
    });
  }
}

TEST_CASE("drop_last skips a short last batch, even if it is the only one") {
  ElasticJob().run_to(0, 1, [](int) {
    Loader loader(Numbers(10), {.batch_size = 4, .drop_last = true}),
        none(Numbers(3), {.batch_size = 4, .drop_last = true});
    EXPECT(loader.size() == 2 && none.size() == 0);
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      EXPECT(read_all(loader) == Samples{0, 1, 2, 3, 4, 5, 6, 7});
      EXPECT(read_all(none).empty());
    }
  });
}

TEST_CASE("the order changes every epoch and does not depend on the number of workers") {
  ElasticJob().run_to(0, 2, [](int) {
    Loader plain(Numbers(50), {.batch_size = 6, .shuffle = true, .seed = 3});
    Loader threaded(Numbers(50), {.batch_size = 6, .shuffle = true, .workers = 3, .seed = 3});
    Loader narrow(Numbers(50), {.batch_size = 6, .shuffle = true, .workers = 2, .prefetch = 1, .seed = 3});
    Samples last;
    for ([[maybe_unused]] int epoch : remaining_epochs_until(3)) {
      const auto samples = read_all(plain);
      EXPECT(samples.size() == 25);
      EXPECT(samples != last);
      EXPECT(read_all(threaded) == samples);
      EXPECT(read_all(narrow) == samples);
      last = samples;
    }
  });
}

TEST_CASE("a loop left by an exception resumes, and one left by break is finished") {
  ElasticJob().run_to(0, 1, [](int) {
    Loader loader(Numbers(10), {.batch_size = 2});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      EXPECT(!error_of<std::runtime_error>([&] {
                for (auto& batch : loader) {
                  if (samples_of(batch)[0] == 4) throw std::runtime_error("out of luck");
                }
              }).empty());
      EXPECT(current_dataloader() == nullptr);
      EXPECT(read_all(loader) == Samples{4, 5, 6, 7, 8, 9});
      for (auto& batch : loader) {
        if (samples_of(batch)[0] == 4) break;
      }
      EXPECT(current_dataloader() == nullptr);
      EXPECT(read_all(loader).size() == 10);
    }
  });
}

TEST_CASE("examples are stacked, batches are passed through, and collate may return any type") {
  ElasticJob().run_to(0, 1, [](int) {
    const auto rows = torch::arange(8).view({4, 2});
    AdaptiveDataLoader tensors(torch::data::datasets::TensorDataset(rows), {.batch_size = 4});
    AdaptiveDataLoader mapped(
        Numbers(4).map(torch::data::transforms::Lambda<torch::data::Example<>>(
            [](torch::data::Example<> example) { return torch::data::Example<>(example.data + 1, example.target); })),
        {.batch_size = 4});
    AdaptiveDataLoader stacked(Numbers(4).map(torch::data::transforms::Stack<>()), {.batch_size = 4});
    AdaptiveDataLoader words(Words(), {.batch_size = 2});
    AdaptiveDataLoader collated(Numbers(4), {.batch_size = 4},
                                [](const std::vector<torch::data::Example<>>& examples) { return examples.size(); });
    const auto count_words = [](const std::vector<std::string>& batch) { return batch.size(); };
    AdaptiveDataLoader joined(Words(), DataLoaderOptions{.batch_size = 3}, count_words);
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      for (auto& batch : tensors) EXPECT(batch.data.equal(rows));
      for (auto& batch : mapped) EXPECT(batch.data.equal(torch::arange(1, 5)));
      for (auto& batch : stacked) EXPECT(batch.target.equal(2 * torch::arange(4)));
      std::vector<std::string> all;
      for (auto& batch : words) all.insert(all.end(), batch.begin(), batch.end());
      EXPECT(all == std::vector<std::string>{"word0", "word1", "word2", "word3"});
      for (auto& size : collated) EXPECT(size == 4);
      std::vector<std::size_t> sizes;
      for (auto& size : joined) sizes.push_back(size);
      EXPECT(sizes == std::vector<std::size_t>{3, 1});
    }
  });
}

TEST_CASE("an exception thrown by the dataset reaches the training thread at its batch") {
  ElasticJob().run_to(0, 1, [](int) {
    for (const int workers : {0, 1, 4}) {
      Watched dataset(20, 1ms, 9);
      AdaptiveDataLoader loader(dataset, {.batch_size = 2, .workers = workers});
      const int end = adaptdl::finished_epochs() + 1;
      for ([[maybe_unused]] int epoch : remaining_epochs_until(end)) {
        std::size_t batches = 0;
        EXPECT(error_of<std::runtime_error>([&] {
                 for ([[maybe_unused]] auto& batch : loader) ++batches;
               }) == "sample 9 is bad");
        EXPECT(batches == 4);
      }
    }
  });
}

TEST_CASE("workers do not exceed the prefetch limit and stop with the loop") {
  ElasticJob().run_to(0, 1, [](int) {
    Watched dataset(1000, 1ms, 1000);
    const auto fetched = dataset.fetched;
    AdaptiveDataLoader loader(dataset, {.batch_size = 1, .workers = 2, .prefetch = 3});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      int taken = 0;
      for ([[maybe_unused]] auto& batch : loader) {
        ++taken;
        if (taken % 8 == 0) std::this_thread::sleep_for(15ms);
        EXPECT(*fetched <= taken + 3);
        if (taken == 40) break;
      }
      // The threads have been joined, so nothing more is fetched.
      const int at_the_end = *fetched;
      EXPECT(at_the_end >= 40);
      std::this_thread::sleep_for(20ms);
      EXPECT(*fetched == at_the_end);
    }
  });
}

TEST_CASE("workers fetch concurrently, each with its own copy of the dataset") {
  struct Meeting : Numbers {
    using Numbers::Numbers;
    // Returns once three calls, each in its own copy, are waiting.
    std::vector<torch::data::Example<>> get_batch(c10::ArrayRef<std::size_t> indices) override {
      for (++*arrived; *arrived < 3;) std::this_thread::yield();
      EXPECT(user == std::thread::id() || user == std::this_thread::get_id());
      user = std::this_thread::get_id();
      return Numbers::get_batch(indices);
    }
    std::thread::id user;
    std::shared_ptr<std::atomic<int>> arrived = std::make_shared<std::atomic<int>>(0);
  };
  ElasticJob().run_to(0, 1, [](int) {
    AdaptiveDataLoader loader(Meeting(24), {.batch_size = 1, .workers = 3});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) EXPECT(read_all(loader).size() == 24);
  });
}

TEST_CASE("misuse and invalid options are rejected with an explanation") {
  ElasticJob().run_to(0, 1, [](int) {
    Loader loader(Numbers(4), {.batch_size = 2}), other(Numbers(4), {.name = "validation"});
    EXPECT(other.helper().name() == "adaptdl-dataloader-epochnone-validation");
    EXPECT(says(error_of<UsageError>([&] { read_all(loader); }),
                "'adaptdl-dataloader-epochnone-0' is iterated outside an epoch loop"));
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      for ([[maybe_unused]] auto& batch : loader) {
        EXPECT(says(error_of<UsageError>([&] { read_all(loader); }), "nested"));
        EXPECT(says(error_of<UsageError>([&] { Loader late(Numbers(4)); }), "create it before or after the loop"));
        EXPECT(current_dataloader() == &loader.helper());
      }
      EXPECT(read_all(other).size() == 4);
    }
    EXPECT(says(error_of<UsageError>([] { Loader(Numbers(0)); }), "empty"));
    EXPECT(says(error_of<UsageError>([] { Loader(Numbers(1), {.batch_size = 0}); }),
                "batch_size must be at least 1 (samples over all replicas), got 0"));
    EXPECT(says(error_of<UsageError>([] { Loader(Numbers(1), {.batch_size = -3}); }), "all replicas), got -3"));
    EXPECT(says(error_of<UsageError>([] { Loader(Numbers(1), {.workers = -1}); }),
                "workers must be at least 0 (threads; 0 for none), got -1"));
    EXPECT(says(error_of<UsageError>([] { Loader(Numbers(1), {.workers = 1, .prefetch = -1}); }),
                "prefetch must be at least 0 (batches; 0 for two per worker), got -1"));
    EXPECT(says(error_of<UsageError>([] { AdaptiveDataLoader<Words>(Words(), {.workers = 1}); }), "cannot be copied"));
    EXPECT(says(error_of<UsageError>([] { AdaptiveDataLoaderHelper(0); }), "batch_size"));
  });
}

TEST_CASE("a loop without init_process_group fails and names the missing call") {
  const ElasticJob job;
  const auto codes = testing::run_replicas(1, [&](int) {
    job.prepare();
    Loader loader(Numbers(4));
    EXPECT(says(error_of<Error>([&] {
                  for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) read_all(loader);
                }),
                "init_process_group"));
  });
  CHECK(codes == std::vector<int>{0});
}

TEST_CASE("the first loader to train is the training loader until it is destroyed") {
  ElasticJob().run_to(0, 1, [](int) {
    auto first = std::make_unique<Loader>(Numbers(4));
    Loader second(Numbers(4));
    EXPECT(!first->helper().training());
    first->helper().train();
    second.helper().train();
    EXPECT(first->helper().training() && !second.helper().training());
    first.reset();
    second.helper().train();
    EXPECT(second.helper().training());
  });
}

TEST_CASE("sample_generator draws the same numbers for a sample with any number of replicas and workers") {
  // Draws a random value for each sample, as an augmentation would.
  struct Augmented : Numbers {
    using Numbers::Numbers;
    std::vector<torch::data::Example<>> get_batch(c10::ArrayRef<std::size_t> indices) override {
      std::vector<torch::data::Example<>> examples;
      const auto of_batch = torch::rand({1}, adaptdl::sample_generator());
      for (const auto index : indices)
        examples.emplace_back(torch::rand({2}, adaptdl::sample_generator(index)), of_batch);
      return examples;
    }
  };
  std::vector<std::string> drawn;
  for (const int workers : {0, 3}) {
    for (const int replicas : {1, 2}) {
      const ElasticJob job;
      const auto file = job.path() / ("drawn" + std::to_string(drawn.size()));
      job.run_to(0, replicas, [&](int rank) {
        AdaptiveDataLoader loader(Augmented(24), {.batch_size = 4, .workers = workers, .seed = 5});
        std::string text;
        torch::manual_seed(1);
        for (int epoch : remaining_epochs_until(2)) {
          for (auto& batch : loader) {
            const auto values = batch.data.flatten();
            if (epoch == 1 && rank == 0) text += std::to_string(values[0].item<double>()) + " ";
          }
        }
        // The default generator was not used.
        const auto next = torch::rand({1});
        torch::manual_seed(1);
        EXPECT(rank > 0 || next.equal(torch::rand({1})));
        if (rank == 0) std::ofstream(file) << text;
      });
      std::ifstream in(file);
      drawn.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
  }
  CHECK(drawn[0].size() > 40);
  CHECK(drawn[1] == drawn[0]);
  CHECK(drawn[2] == drawn[0]);
  CHECK(drawn[3] == drawn[0]);
  ElasticJob().run_to(0, 1, [](int) {
    EXPECT(says(error_of<UsageError>([] { adaptdl::sample_generator(); }), "sample_generator(index)"));
  });
}

TEST_CASE("tensors to pin are found in batches of any type") {
  const auto count = [](auto batch) {
    int found = 0;
    const auto use = [&](const at::Tensor&) { ++found; };
    adaptdl::internal::each_tensor(batch, use);
    adaptdl::internal::pin(batch);
    return found;
  };
  const auto x = torch::ones({2});
  CHECK(count(x) == 1);
  CHECK(count(torch::data::Example<>(x, x)) == 2);
  CHECK(count(std::vector{torch::data::TensorExample(x), torch::data::TensorExample(x)}) == 2);
  CHECK(count(std::make_tuple(x, 1, std::optional(x), std::optional<at::Tensor>())) == 2);
  CHECK(count(std::map<std::string, std::vector<at::Tensor>>{{"a", {x, x}}, {"b", {x}}}) == 3);
  CHECK(count(c10::ivalue::Tuple::create({x, 1, std::vector{x, x}})) == 0);  // a pointer is not searched
  CHECK(count(c10::IValue(c10::ivalue::Tuple::create({x, 1, std::vector{x, x}}))) == 3);
  CHECK(count(std::make_pair(std::vector{true, false}, std::string("text"))) == 0);
}

}  // namespace data_loader_test
