// Tests how a data loader fetches batches: from any dataset, in worker threads, with random numbers for each sample,
// and into pinned memory.
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "data_loader_support.h"
#include "elastic_job.h"
#include "numbers.h"
#include "replica_processes.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

#include "error_of.h"

namespace data_loader_fetch_test {

namespace {

using namespace std::chrono_literals;
using adaptdl::AdaptiveDataLoader;
using adaptdl::DataLoaderOptions;
using adaptdl::remaining_epochs_until;
using adaptdl::UsageError;
using data_loader_support::read_all;
using data_loader_support::Words;
using testing::ElasticJob;
using ::testing::error_of;
using testing::Numbers;
using ::testing::says;

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

}  // namespace

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

}  // namespace data_loader_fetch_test
