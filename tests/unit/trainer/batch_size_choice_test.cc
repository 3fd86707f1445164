// Tests the bounds of the batch size, and its choice by goodput, which is fitted to the measured step times.
#include "loop/batch_size_choice.h"

#include <torch/types.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "adaptdl/collective.h"
#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "adaptdl/goodput.h"
#include "adaptdl/metrics.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "autoscale_support.h"
#include "elastic_job.h"
#include "numbers.h"
#include "replica_processes.h"
#include "support/step_profile.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

#include "error_of.h"

namespace batch_size_choice_test {

namespace {

namespace goodput = adaptdl::goodput;
namespace metrics = adaptdl::metrics;
using adaptdl::AdaptiveDataLoader;
using adaptdl::LocalBszBounds;
using adaptdl::remaining_epochs_until;
using adaptdl::UsageError;
using adaptdl::internal::BatchSize;
using adaptdl::internal::BatchSizeRange;
using autoscale_support::Progress;
using testing::ElasticJob;
using testing::Numbers;
using Loader = AdaptiveDataLoader<Numbers>;
using ::testing::error_of;
using ::testing::says;

std::size_t share(std::size_t total, int replicas) {
  return (total + static_cast<std::size_t>(replicas) - 1) / static_cast<std::size_t>(replicas);
}

}  // namespace

TEST_CASE("invalid bounds are rejected with their values") {
  ElasticJob().run_to(0, 2, [](int) {
    Loader loader(Numbers(100), {.batch_size = 64, .name = "train"});
    const auto refused = [&](std::size_t max, LocalBszBounds bounds, bool accumulation, const std::string& why) {
      const auto error = error_of<UsageError>([&] { loader.autoscale_batch_size(max, bounds, accumulation); });
      EXPECT(says(error, "autoscale_batch_size") && says(error, "'adaptdl-dataloader-epochnone-train'"));
      EXPECT(says(error, why));
      EXPECT(!loader.helper().max_batch_size() && !loader.training());
    };
    refused(63, {}, true, "max_batch_size 63 is below the initial batch_size 64");
    refused(0, {}, true, "max_batch_size 0 is below");
    refused(128, {.min = 0}, false, "bounds must be at least 1 sample");
    refused(128, {.max = 0}, true, "bounds must be at least 1 sample");
    refused(128, {.min = 33, .max = 32}, true, "lower local batch size bound 33 is above the upper bound 32");
    refused(128, {.min = 65}, false, "lower local batch size bound 65 is above the initial batch_size 64");
    refused(128, {.max = 31}, false,
            "batch_size 64 on 2 replicas is 32 per replica, above the upper local batch size "
            "bound 31");
    loader.autoscale_batch_size(64, {.max = 31}, true);
    EXPECT(loader.helper().max_batch_size() == 64u && loader.training());
    EXPECT(loader.helper().local_bsz_bounds() == LocalBszBounds{.max = 31});
    EXPECT(metrics::batch_sizes()->init_batch_size == 64 && metrics::batch_sizes()->limits.max_batch_size == 64u);
    EXPECT(metrics::batch_sizes()->limits.max_local_bsz == 31u && metrics::batch_sizes()->limits.accumulation);

    Loader other(Numbers(100), {.batch_size = 4});
    EXPECT(says(error_of<UsageError>([&] { other.autoscale_batch_size(8); }),
                "'adaptdl-dataloader-epochnone-train' is already the data loader for training"));
  });
}

TEST_CASE("accumulation reaches the requested total batch size on any number of replicas") {
  for (std::size_t batch_size = 1; batch_size <= 96; ++batch_size) {
    for (std::size_t max = 1; max <= 40; max += 3) {
      for (int replicas = 1; replicas <= 9; ++replicas) {
        const BatchSizeRange range{batch_size,
                                   {.max_batch_size = batch_size, .max_local_bsz = max, .accumulation = true}};
        const auto size = even_batch_size(range, replicas);
        const auto pieces =
            (static_cast<std::size_t>(size.accumulation_steps) + 1) * static_cast<std::size_t>(replicas);
        const auto total = size.local_bsz * pieces;
        CHECK(size.local_bsz <= max);
        CHECK(total >= batch_size);
        CHECK(total < batch_size + pieces);
        // There are no more batches than needed.
        CHECK((size.accumulation_steps == 0 ||
               static_cast<std::size_t>(size.accumulation_steps) * max < share(batch_size, replicas)));
        CHECK(allows(range, replicas, size));
      }
    }
  }
  const BatchSizeRange bounded{8, {.max_batch_size = 64, .min_local_bsz = 4}};
  CHECK(even_batch_size(bounded, 1) == BatchSize{8, 0});
  CHECK(even_batch_size(bounded, 4) == BatchSize{4, 0});
  CHECK(allows(bounded, 2, {32, 0}));
  CHECK_FALSE(allows(bounded, 2, {3, 0}));   // below the lower bound
  CHECK_FALSE(allows(bounded, 2, {33, 0}));  // above the maximum total
  CHECK_FALSE(allows(bounded, 1, {16, 1}));  // accumulates
}

TEST_CASE("the batch size changes only if goodput improves by more than 5%") {
  // A step takes 0.1 s plus 0.001 s per sample. With the noise of the first function, larger batch sizes pay off.
  const goodput::PerfParams perf{.alpha_c = 0.1, .beta_c = 0.001, .gamma = 1};
  const goodput::GoodputFunction noisy(perf, {.sqr = 1, .var = 1000}, 32), quiet(perf, {.sqr = 1, .var = 1e-3}, 32);
  const BatchSizeRange range{32, {.max_batch_size = 512}};
  const auto best = best_batch_size(noisy, range, 1, 2, {});
  CHECK(best.local_bsz == noisy.optimize(1, 2, range.limits).atomic_bsz);
  CHECK(best.local_bsz > 100);
  CHECK(best_batch_size(noisy, range, 1, 2, BatchSize{16, 0}) == best);
  // A batch size that is nearly as good is kept.
  const auto near = BatchSize{best.local_bsz - 5, 0};
  const auto at = [&](const BatchSize& size) { return noisy.evaluate(1, 2, static_cast<double>(size.local_bsz), 0); };
  REQUIRE(at(best) > at(near));
  REQUIRE(at(best) < 1.05 * at(near));
  CHECK(best_batch_size(noisy, range, 1, 2, near) == near);
  CHECK(best_batch_size(quiet, range, 1, 2, BatchSize{16, 0}) == BatchSize{16, 0});
  // If the lower bound alone exceeds the maximum because of many replicas, the batch size is kept without an error.
  const BatchSizeRange crowded{32, {.max_batch_size = 64, .min_local_bsz = 16}};
  CHECK(best_batch_size(noisy, crowded, 1, 8, BatchSize{16, 0}) == BatchSize{16, 0});
}

TEST_CASE("the goodput model is fitted to the measured step times, and the batch size grows accordingly" *
          doctest::test_suite("slow")) {
  for (const int workers : {0, 2}) {
    const ElasticJob job;
    job.run_to(0, 2, [&](int rank) {
      Loader loader(Numbers(100000), {.batch_size = 32, .shuffle = true, .workers = workers});
      loader.autoscale_batch_size(1024);
      double clock = 100;
      metrics::set_clock([&] { return clock; });
      Progress progress;
      metrics::set_grad_params("model", {.sqr = 1, .var = 2000});
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        for (auto& batch : loader) {
          clock += 0.020 + 0.0001 * static_cast<double>(batch.data.numel());
          adaptdl::internal::add_sync_time([] { return std::optional(0.005); });
          progress.step(loader.helper());
          if (clock > 110) break;
        }
        const auto size = loader.helper().current_local_bsz();
        EXPECT(size > 200 && size <= 512);
        const auto goodput = metrics::goodput_function();
        if (rank == 0) {
          EXPECT(goodput.has_value());
          // The step time that the fitted model predicts, which must match the clock.
          const auto seconds = 2.0 * static_cast<double>(size) /
                               goodput->throughput(adaptdl::env::num_nodes(), 2, static_cast<double>(size), 0);
          EXPECT(std::abs(seconds / (0.020 + 0.0001 * static_cast<double>(size)) - 1) < 0.03);
          EXPECT(metrics::hints().at("maxProfiledReplicas") == 2);
          job.note(std::to_string(size));
        }
        for (const auto& other : adaptdl::collective::world().allgather(std::to_string(size)))
          EXPECT(other == std::to_string(size));
      }
      metrics::set_clock({});
    });
  }
}

TEST_CASE("delayed step times are recorded once known, and batches without a profile are ignored") {
  namespace internal = adaptdl::internal;
  // A timer like that of a GPU: times are known three batches later, and are equal for all steps.
  struct Late : internal::StepTimer {
    void begin() override { ++begun; }
    internal::Seconds end() override {
      return [this, at = begun] { return begun >= at + 3 ? std::optional(0.25) : std::nullopt; };
    }
    int begun = 0;
  };
  ElasticJob().run_to(0, 1, [](int) {
    internal::set_step_timer(std::make_unique<Late>());
    metrics::set_grad_params("model", {.sqr = 1, .var = 1});
    metrics::set_batch_sizes({8, {}});
    const auto fit = [] {
      metrics::begin_fit();
      metrics::finish_fit();
      return metrics::goodput_function();
    };
    const auto batch = [](const std::optional<internal::BatchProfile>& profile) {
      internal::begin_batch();
      internal::add_sync_time([] { return std::optional(0.125); });
      internal::end_batch(profile);
    };
    const internal::BatchProfile profile{.nodes = 1, .replicas = 2, .local_bsz = 4};
    batch(profile);
    batch({});
    batch({});
    EXPECT(!fit());  // no time is known yet
    batch({});
    batch(profile);
    const auto known = fit();
    EXPECT(known && std::abs(8 / known->throughput(1, 2, 4, 0) - 0.25) < 0.01);
    EXPECT(metrics::hints().at("maxProfiledReplicas") == 2);
    internal::set_step_timer(nullptr);
  });
}

}  // namespace batch_size_choice_test
