// Tests loops with an adaptive batch size: its changes, the accumulation of steps, and epochs that end at a target
// progress.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "adaptdl/collective.h"
#include "adaptdl/error.h"
#include "adaptdl/metrics.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/summary_writer.h"
#include "autoscale_support.h"
#include "elastic_job.h"
#include "loop/batch_size_choice.h"
#include "loop/step_boundary.h"
#include "numbers.h"
#include "replica_processes.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

#include "error_of.h"

namespace autoscale_test {

namespace {

namespace metrics = adaptdl::metrics;
using adaptdl::AdaptiveDataLoader;
using adaptdl::AdaptiveDataLoaderMixin;
using adaptdl::remaining_epochs_until;
using adaptdl::UsageError;
using adaptdl::internal::set_batch_size_decider;
using autoscale_support::Progress;
using testing::ElasticJob;
using testing::Numbers;
using testing::samples_of;
using Loader = AdaptiveDataLoader<Numbers>;
using ::testing::error_of;
using ::testing::says;

}  // namespace

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
