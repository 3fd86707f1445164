// Tests which batches the loop of a data loader yields on each replica, and that misuse is rejected.
#include "adaptdl/torch/data_loader.h"

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "adaptdl/collective.h"
#include "adaptdl/error.h"
#include "adaptdl/torch/epoch.h"
#include "data_loader_support.h"
#include "elastic_job.h"
#include "numbers.h"
#include "replica_processes.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

#include "error_of.h"

namespace data_loader_test {

namespace {

using adaptdl::AdaptiveDataLoader;
using adaptdl::AdaptiveDataLoaderHelper;
using adaptdl::current_dataloader;
using adaptdl::DataLoaderOptions;
using adaptdl::ElasticSampler;
using adaptdl::Error;
using adaptdl::remaining_epochs_until;
using adaptdl::UsageError;
using data_loader_support::read_all;
using data_loader_support::Samples;
using data_loader_support::Words;
using testing::ElasticJob;
using ::testing::error_of;
using testing::Numbers;
using testing::samples_of;
using ::testing::says;

// Custom samplers do not compile.
using Loader = AdaptiveDataLoader<Numbers>;
static_assert(std::is_constructible_v<Loader, Numbers, DataLoaderOptions>);
static_assert(!std::is_constructible_v<Loader, Numbers, torch::data::samplers::SequentialSampler>);
static_assert(!std::is_constructible_v<Loader, Numbers, torch::data::samplers::SequentialSampler, DataLoaderOptions>);
static_assert(!std::is_constructible_v<Loader, Numbers, ElasticSampler&>);

}  // namespace

TEST_CASE("batch_size is the total across all replicas, and samples are dealt in turn") {
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

TEST_CASE("misuse and invalid options are rejected with an explanation") {
  ElasticJob().run_to(0, 1, [](int) {
    Loader loader(Numbers(4), {.batch_size = 2}), other(Numbers(4), {.name = "validation"});
    EXPECT(other.helper().name() == "adaptdl-dataloader-epochnone-validation");
    EXPECT(says(error_of<UsageError>([&] { read_all(loader); }),
                "'adaptdl-dataloader-epochnone-0' is iterated outside an epoch loop"));
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      for ([[maybe_unused]] auto& batch : loader) {
        EXPECT(says(error_of<UsageError>([&] { read_all(loader); }), "inside its own loop"));
        EXPECT(says(error_of<UsageError>([&] { Loader late(Numbers(4)); }), "create it before or after the loop"));
        EXPECT(current_dataloader() == &loader.helper());
      }
      EXPECT(read_all(other).size() == 4);
    }
    EXPECT(says(error_of<UsageError>([] { Loader(Numbers(0)); }), "empty"));
    EXPECT(says(error_of<UsageError>([] { Loader(Numbers(1), {.batch_size = 0}); }),
                "batch_size must be at least 1 (samples across all replicas), got 0"));
    EXPECT(says(error_of<UsageError>([] { Loader(Numbers(1), {.batch_size = -3}); }), "all replicas), got -3"));
    EXPECT(
        says(error_of<UsageError>([] { Loader(Numbers(1), {.workers = -1}); }), "workers must be at least 0, got -1"));
    EXPECT(says(error_of<UsageError>([] { Loader(Numbers(1), {.workers = 1, .prefetch = -1}); }),
                "prefetch must be at least 0, got -1"));
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

}  // namespace data_loader_test
