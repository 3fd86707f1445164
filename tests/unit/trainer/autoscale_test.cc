// Tests the adaptive batch size: its bounds, its choice by goodput, and its use in a loop.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "adaptdl/env.h"
#include "adaptdl/metrics.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/summary_writer.h"
#include "elastic_job.h"
#include "loop/batch_size_choice.h"
#include "loop/step_boundary.h"
#include "numbers.h"
#include "support/step_profile.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

#include "error_of.h"

namespace autoscale_test {

namespace {

namespace goodput = adaptdl::goodput;
namespace metrics = adaptdl::metrics;
using adaptdl::AdaptiveDataLoader;
using adaptdl::AdaptiveDataLoaderHelper;
using adaptdl::AdaptiveDataLoaderMixin;
using adaptdl::LocalBszBounds;
using adaptdl::remaining_epochs_until;
using adaptdl::UsageError;
using adaptdl::internal::BatchSize;
using adaptdl::internal::BatchSizeRange;
using adaptdl::internal::set_batch_size_decider;
using testing::ElasticJob;
using testing::Numbers;
using testing::samples_of;
using Loader = AdaptiveDataLoader<Numbers>;
using ::testing::error_of;
using ::testing::says;

// Replaces the model: each optimizer step is one iteration of progress.
class Progress {
 public:
  void step(const AdaptiveDataLoaderHelper& helper, double iterations = 1) {
    if (helper.is_optim_step()) metrics::set_progress("model", total_ += iterations);
  }
  double total() const { return total_; }

 private:
  double total_ = 0;
};

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

TEST_CASE("a fixed total batch size is accumulated, and the optimizer steps after the last part") {
  const ElasticJob job;
  for (const int replicas : {1, 2, 3, 4}) {
    job.run_to(0, replicas, [&](int) {
      // The job reports no progress, so an epoch is one pass.
      Loader loader(Numbers(650), {.batch_size = 64});
      loader.autoscale_batch_size(64, {.max = 16}, true);
      const std::size_t parts = replicas == 1 ? 4 : replicas == 4 ? 1 : 2;
      const int epoch_end = adaptdl::finished_epochs() + 1;
      for ([[maybe_unused]] int epoch : remaining_epochs_until(epoch_end)) {
        std::size_t in_step = 0, steps = 0;
        std::string ends;
        for (auto& batch : loader) {
          const auto& helper = loader.helper();
          EXPECT(batch.data.numel() <= 16);
          EXPECT(*loader.current_batch_size() == (replicas == 3 ? 66u : 64u));
          EXPECT(static_cast<std::size_t>(helper.accumulated()) == in_step);
          ++in_step;
          const bool last =
              *helper.current_index() + helper.current_local_bsz() * static_cast<unsigned>(replicas) >= 650;
          EXPECT(helper.is_optim_step() == (in_step == parts || last));
          if (helper.is_optim_step()) ++steps, in_step = 0;
        }
        // The last step has fewer samples than the others.
        EXPECT(in_step == 0 && steps == (replicas == 3 ? 10 : 11));
        EXPECT(!loader.current_batch_size());
      }
    });
  }
}

TEST_CASE("the batch size changes only if goodput improves by more than 5 percent") {
  // A step takes 0.1 s plus 0.001 s per sample. The first function has enough noise for larger batch sizes.
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

TEST_CASE("all replicas apply rank 0's decision at the same step and redistribute the remaining samples") {
  constexpr std::size_t kSamples = 500;
  for (const int workers : {0, 2}) {
    for (const int replicas : {1, 3}) {
      const ElasticJob job;
      job.run_to(0, replicas, [&](int rank) {
        Loader loader(Numbers(kSamples), {.batch_size = 12, .shuffle = true, .workers = workers});
        loader.autoscale_batch_size(120, {}, true);
        set_batch_size_decider([](std::uint64_t step) -> std::optional<std::pair<std::size_t, int>> {
          if (step == 3) return std::pair{std::size_t{7}, 1};
          if (step == 5) return std::pair{std::size_t{3}, 0};
          if (step == 6) return std::pair{std::size_t{9}, 2};
          return {};
        });
        Progress progress;
        for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
          std::string sizes;
          std::vector<std::string> seen;
          for (auto& batch : loader) {
            const auto& helper = loader.helper();
            EXPECT(!helper.batch_size_changed());
            sizes += fmt::format(" {}x{}", helper.current_local_bsz(), helper.accumulation_steps() + 1);
            if (*helper.current_index() < kSamples) {
              for (const auto sample : samples_of(batch)) seen.push_back(std::to_string(sample));
            }
            progress.step(helper, 0.5);
          }
          if (rank == 0) job.note(sizes);
          for (const auto& other : adaptdl::collective::world().allgather(sizes)) EXPECT(other == sizes);
          // The first pass has every sample once, and at most replicas - 1 of them a second time.
          std::map<std::string, int> times;
          std::size_t total = 0;
          for (const auto& of_one : adaptdl::collective::world().allgather(fmt::format("{}", fmt::join(seen, " ")))) {
            std::istringstream text(of_one);
            for (std::string sample; text >> sample;) ++times[sample], ++total;
          }
          EXPECT(times.size() == kSamples && total < kSamples + static_cast<std::size_t>(replicas));
        }
      });
      // A decision that is submitted at a boundary takes effect at the next one, after four steps of the first size.
      // The batches of an accumulated step count as one step.
      const auto notes = job.notes();
      REQUIRE(notes.size() == 1);
      INFO(notes[0]);
      const std::string first = replicas == 1 ? " 12x1" : " 4x1";
      CHECK(notes[0].starts_with(first + first + first + first + " 7x2 7x2 7x2 7x2 3x1 9x3 9x3 9x3 9x3"));
    }
  }
}

TEST_CASE("an epoch ends when its target progress is reached, which may take several passes") {
  for (const int replicas : {1, 2}) {
    const ElasticJob job;
    job.run_to(0, replicas, [&](int) {
      Loader loader(Numbers(100), {.batch_size = 10, .shuffle = true});
      Loader validation(Numbers(30), {.batch_size = 10});
      loader.autoscale_batch_size(100);
      Progress progress;
      std::vector<std::int64_t> first_of_pass;
      for (const int epoch : remaining_epochs_until(4)) {
        std::size_t steps = 0, validated = 0;
        for (auto& batch : loader) {
          if (*loader.helper().current_index() % 100 == 0) first_of_pass.push_back(samples_of(batch)[0]);
          if (steps == 0 && adaptdl::collective::world().rank() == 0)
            EXPECT(metrics::hints().at("targetProgress") == 40);
          progress.step(loader.helper(), epoch == 2 ? 15 : 0.5);  // in epoch 2, the first step exceeds the target
          ++steps;
        }
        for (auto& batch : validation) validated += static_cast<std::size_t>(batch.data.numel());
        EXPECT(steps == (epoch == 2 ? 1u : epoch == 3 ? 10u : 20u));
        EXPECT(validated == 30u / static_cast<unsigned>(replicas));
      }
      // Each pass has its own order.
      EXPECT(std::set<std::int64_t>(first_of_pass.begin(), first_of_pass.end()).size() > 2);
      EXPECT(first_of_pass.size() == 6);
    });
  }
}

TEST_CASE("an epoch without progress fails instead of running forever") {
  const ElasticJob job;
  const auto codes = job.run(2, [&](int) {
    Loader loader(Numbers(100), {.batch_size = 10});
    loader.autoscale_batch_size(100);
    metrics::set_progress("model", 3);  // from an earlier epoch
    std::size_t steps = 0;
    try {
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        for ([[maybe_unused]] auto& batch : loader) ++steps;
      }
    } catch (const UsageError&) {
      job.note(std::to_string(steps));
      throw;
    }
  });
  CHECK(codes == std::vector<int>{1, 1});
  CHECK(says(job.errors(), "made no progress in a whole pass"));
  CHECK(says(job.errors(), "Adaptive<>"));
  // A replica that is one step behind may report the loss of the other replica instead.
  REQUIRE(!job.notes().empty());
  for (const auto& steps : job.notes()) CHECK(std::stoi(steps) < 100);
}

TEST_CASE("an epoch with only invalid gradients keeps its batch size and fails with the reason") {
  const ElasticJob job;
  const auto codes = job.run(2, [&](int) {
    Loader loader(Numbers(2000), {.batch_size = 32});
    loader.autoscale_batch_size(1024);
    double clock = 100;
    metrics::set_clock([&] { return clock; });
    metrics::set_progress("model", 0);
    metrics::set_grad_params("model", {.sqr = 1, .var = 2000});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      for (auto& batch : loader) {
        clock += 0.1 + 0.0001 * static_cast<double>(batch.data.numel());
        EXPECT(loader.helper().current_local_bsz() == 16);
        adaptdl::internal::note_step("model", false);
      }
    }
  });
  CHECK(codes == std::vector<int>{1, 1});
  CHECK(says(job.errors(), "because all gradients were NaN or infinite"));
}

TEST_CASE("an unfinished step is discarded after a break, and repeated from its start after an exception") {
  ElasticJob().run_to(0, 1, [](int) {
    Loader loader(Numbers(64), {.batch_size = 16});
    loader.autoscale_batch_size(16, {.max = 4}, true);
    const auto& helper = loader.helper();
    Progress progress;
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      for (auto& batch : loader) {
        if (samples_of(batch)[0] == 24) break;  // in the third of four batches of the second step
      }
      EXPECT(!error_of<std::runtime_error>([&] {
                for (auto& batch : loader) {
                  if (samples_of(batch)[0] == 0) {
                    EXPECT(helper.accumulated() == 0 && helper.is_accum_step());
                  }
                  if (samples_of(batch)[0] == 28) throw std::runtime_error("out of luck");  // in the last batch
                }
              }).empty());
      std::vector<std::int64_t> first;
      for (auto& batch : loader) {
        if (first.empty()) EXPECT(helper.accumulated() == 0);
        first.push_back(samples_of(batch)[0]);
        progress.step(helper);
      }
      EXPECT(first.front() == 16);
    }
  });
}

namespace {

// A custom loader that reads the rows of a table with one column for each sample of a batch.
class Columns : public AdaptiveDataLoaderMixin {
 public:
  explicit Columns(std::size_t batch_size) : AdaptiveDataLoaderMixin(batch_size) {}

  void read(std::size_t samples, const std::function<void(std::size_t layout)>& use) {
    auto& loop = helper();
    auto context = loop.context();
    if (loop.skipdone()) return;
    auto layout = loop.sync_local_bsz();
    while (*loop.current_index() < samples) {
      const auto left = samples - *loop.current_index();
      auto profile = loop.profile(true, (left + layout - 1) / layout);
      if (loop.batch_size_changed()) layout = loop.sync_local_bsz();
      EXPECT(layout == loop.current_local_bsz());
      use(layout);
      loop.advance();
    }
  }
};

}  // namespace

TEST_CASE("a custom loader adapts to a new batch size, and its last batch completes a step") {
  ElasticJob().run_to(0, 1, [](int) {
    Columns columns(4);
    columns.autoscale_batch_size(100, {}, true);
    set_batch_size_decider([](std::uint64_t step) -> std::optional<std::pair<std::size_t, int>> {
      if (step == 1) return std::pair{std::size_t{6}, 2};
      return {};
    });
    EXPECT(!columns.current_local_bsz());
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      std::string steps;
      columns.read(32, [&](std::size_t layout) {
        EXPECT(columns.current_local_bsz() == layout);
        steps += fmt::format("{}{} ", layout, columns.helper().is_optim_step() ? "!" : "");
      });
      // 8 samples in steps of 4, 18 in a step of three batches, and 6 in a step that the end of the loop cuts short.
      EXPECT(steps == "4! 4! 6 6 6! 6! ");
    }
  });
}

TEST_CASE("goodput is fitted to the measured step times, and the batch size grows accordingly") {
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

TEST_CASE("to_tensorboard writes the current batch sizes under the given prefix") {
  const ElasticJob job;
  job.run_to(0, 1, [&](int) {
    Loader loader(Numbers(64), {.batch_size = 32});
    loader.autoscale_batch_size(32, {.max = 8}, true);
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      adaptdl::SummaryWriter writer(job.path() / "events");
      for ([[maybe_unused]] auto& batch : loader) loader.to_tensorboard(writer, 7, "Loader");
      writer.flush();
    }
  });
  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(job.path() / "events")) {
    std::ifstream file(entry.path(), std::ios::binary);
    events.append(std::istreambuf_iterator<char>(file), {});
  }
  for (const auto* const tag : {"Loader/Total_Batch_Size", "Loader/Local_Batch_Size", "Loader/Accumulation_Steps"})
    CHECK(says(events, tag));
  // The total batch size, 32, as a little-endian float.
  CHECK(says(events, std::string("\0\0\0\x42", 4)));
}

}  // namespace autoscale_test
