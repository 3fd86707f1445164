// Tests adaptive training with accumulation across restarts. Each replica is a process with a process group, and each
// checkpoint is on disk.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <set>
#include <thread>

#include "adaptdl/metrics.h"
#include "adaptdl/signal.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "adaptdl/torch/scaling_rules.h"
#include "elastic_job.h"
#include "loop/batch_size_choice.h"
#include "loop/step_boundary.h"
#include "numbers.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace adaptive_restart_test {

namespace {

namespace metrics = adaptdl::metrics;
namespace nn = torch::nn;
using adaptdl::AdaptiveDataLoader;
using adaptdl::remaining_epochs_until;
using adaptdl::internal::set_batch_size_decider;
using testing::ElasticJob;
using testing::Numbers;
using Loader = AdaptiveDataLoader<Numbers>;
using Decision = std::optional<std::pair<std::size_t, int>>;

// Returns a new batch size every four steps.
Decision decide(std::uint64_t step) {
  if (step % 4 != 1) return {};
  return std::pair{static_cast<std::size_t>(1 + step * 7 % 9), static_cast<int>(step % 3)};
}

constexpr std::int64_t kFeatures = 6;

// Returns a noisy regression problem that a small net can learn.
std::pair<at::Tensor, at::Tensor> regression(const at::Tensor& numbers) {
  const auto x = torch::sin(numbers.to(torch::kDouble).unsqueeze(1) * torch::arange(1, kFeatures + 1));
  const auto y = x.sum(1, /*keepdim=*/true) + torch::cos(numbers.to(torch::kDouble).unsqueeze(1) * 37);
  return {x.to(torch::kFloat), y.to(torch::kFloat)};
}

// The result of train(): the index and size of each batch, and the final progress and parameters. train() trains on two
// replicas with AdaScale and dropout. Its run number i is stopped after stops[i] batches, and the last run finishes.
struct Trained {
  std::vector<std::string> batches;
  std::string parameters;
};

Trained train(const std::vector<std::size_t>& stops, bool by_clock) {
  const ElasticJob job;
  for (std::size_t run = 0; run <= stops.size(); ++run) {
    const auto codes = testing::run_replicas(2, [&](int rank) {
      job.prepare();
      adaptdl::init_process_group("gloo");
      double clock = 1000.0 * static_cast<double>(run);
      if (by_clock) {
        metrics::set_clock([&] { return clock; });
      } else {
        set_batch_size_decider(decide);
      }
      torch::manual_seed(3);
      nn::Sequential net(nn::Linear(kFeatures, 8), nn::Tanh(), nn::Dropout(0.2), nn::Linear(8, 1));
      adaptdl::Adaptive<torch::optim::SGD> optimizer(net->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
      adaptdl::AdaptiveDataParallel model(net, optimizer);
      Loader loader(Numbers(240), {.batch_size = 8, .shuffle = true, .workers = 1});
      loader.autoscale_batch_size(64, {.max = 12}, true);
      std::size_t batches = 0;
      for ([[maybe_unused]] int epoch : remaining_epochs_until(3)) {
        for (auto& batch : loader) {
          const auto [x, y] = regression(batch.data);
          optimizer.zero_grad();
          torch::mse_loss(model(x), y).backward();
          optimizer.step();
          clock += static_cast<double>(16 + batch.data.numel()) / 1024;
          if (rank == 0) {
            job.note(fmt::format("{} {} {}", *loader.helper().current_index(), batch.data.numel(),
                                 loader.helper().is_optim_step()));
          }
          if (run < stops.size() && ++batches == stops[run] && rank == 1) adaptdl::signal::request_stop(SIGTERM);
        }
      }
      std::string text = fmt::format("progress {}", metrics::progress());
      for (const auto& tensor : net->parameters()) {
        const auto* const values = tensor.data_ptr<float>();
        for (std::int64_t i = 0; i < tensor.numel(); ++i) text += fmt::format(" {:a}", values[i]);
      }
      for (const auto& other : adaptdl::collective::world().allgather(text)) EXPECT(other == text);
      if (rank == 0) std::ofstream(job.path() / "parameters") << text;
      adaptdl::destroy_process_group();
    });
    const int expected = run < stops.size() ? 143 : 0;
    if (codes != std::vector<int>{expected, expected})
      throw std::runtime_error(fmt::format("run {} ended with {} and {}: {}", run, codes[0], codes[1], job.errors()));
  }
  std::ifstream file(job.path() / "parameters");
  return {job.notes(), {std::istreambuf_iterator<char>(file), {}}};
}

void check_bit_equal(bool by_clock, const std::vector<std::vector<std::size_t>>& trials) {
  const auto whole = train({}, by_clock);
  std::set<std::string> sizes;
  for (const auto& batch : whole.batches) sizes.insert(batch.substr(batch.find(' ')));
  REQUIRE(whole.batches.size() > 60);
  REQUIRE(sizes.size() > 3);  // with and without accumulation
  for (const auto& stops : trials) {
    CAPTURE(fmt::format("{}", fmt::join(stops, " ")));
    const auto resumed = train(stops, by_clock);
    CHECK(resumed.batches == whole.batches);
    CHECK(resumed.parameters == whole.parameters);
  }
}

}  // namespace

TEST_CASE("with scripted batch-size decisions, restarts change neither the batches nor any bit of the parameters" *
          doctest::test_suite("slow")) {
  check_bit_equal(false, {{1}, {17}, {30, 5, 22}, {41, 1, 1}});
}

TEST_CASE("a resumed job with sparse gradients ends with the same noise scale as an uninterrupted one") {
  std::string expected;
  for (const bool stops : {false, true}) {
    const ElasticJob job;
    for (int run = 0; run <= (stops ? 1 : 0); ++run) {
      const auto codes = testing::run_replicas(1, [&](int) {
        job.prepare();
        adaptdl::init_process_group("gloo");
        torch::manual_seed(3);
        nn::Sequential net(nn::Embedding(nn::EmbeddingOptions(40, 4).sparse(true)), nn::Linear(4, 1));
        adaptdl::Adaptive<torch::optim::SGD> optimizer(net->parameters(), torch::optim::SGDOptions(0.02));
        adaptdl::AdaptiveDataParallel model(net, optimizer);
        Loader loader(Numbers(40), {.batch_size = 8, .shuffle = true});
        for ([[maybe_unused]] int epoch : remaining_epochs_until(2)) {
          for (auto& batch : loader) {
            optimizer.zero_grad();
            model(batch.data).square().mean().backward();
            optimizer.step();
            if (stops && run == 0 && epoch == 0) adaptdl::signal::request_stop(SIGTERM);
          }
        }
        job.note(fmt::format("{:a} {:a}", model.gns().sqr_avg(), model.gns().var_avg()));
        adaptdl::destroy_process_group();
      });
      CAPTURE(job.errors());
      REQUIRE(codes == std::vector<int>{stops && run == 0 ? 143 : 0});
    }
    if (stops)
      CHECK(job.notes().at(0) == expected);
    else
      expected = job.notes().at(0);
  }
}

TEST_CASE("with a deterministic clock, restarts change neither goodput decisions nor any bit of the parameters" *
          doctest::test_suite("slow")) {
  check_bit_equal(true, {{2}, {19, 3}, {33}, {40, 1, 1}});
}

TEST_CASE("no periodic checkpoint is saved while gradients are NaN, in training or validation loops") {
  const ElasticJob job;
  const auto codes = testing::run_replicas(2, [&](int rank) {
    setenv("ADAPTDL_CHECKPOINT_EVERY", "1ms", 1);
    job.prepare();
    adaptdl::init_process_group("gloo");
    nn::Linear net(kFeatures, 1);
    adaptdl::Adaptive<torch::optim::SGD> optimizer(net->parameters(), torch::optim::SGDOptions(0.01));
    adaptdl::AdaptiveDataParallel model(net, optimizer);
    Loader train(Numbers(40), {.batch_size = 4}), valid(Numbers(20), {.batch_size = 4});
    int last_good = -1;
    for (const int epoch : remaining_epochs_until(3)) {
      int step = 0;
      for (auto& batch : train) {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        const auto [x, y] = regression(batch.data);
        const bool is_nan = epoch == 1 && step >= 5;
        if (epoch == 1 && ++step == 5) last_good = job.newest_checkpoint();
        optimizer.zero_grad();
        (torch::mse_loss(model(x), y) * (is_nan ? NAN : 1.0)).backward();
        optimizer.step();
        if (is_nan) EXPECT(model.gain() == 0);
        // Resets the parameters, as if they had been loaded again.
        if (is_nan) {
          torch::NoGradGuard no_grad;
          for (auto& param : net->parameters()) param.fill_(0.1);
        }
      }
      for ([[maybe_unused]] auto& batch : valid) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      if (rank != 0) continue;
      // Before the first step with NaN gradients, the replicas may have agreed to save one more checkpoint.
      if (epoch == 0) EXPECT(job.newest_checkpoint() >= 0);
      if (epoch == 1) EXPECT(last_good >= 0 && job.newest_checkpoint() <= last_good + 1);
      if (epoch == 2) EXPECT(job.newest_checkpoint() > last_good + 1);
    }
    EXPECT(std::abs(model.gns().progress() - 25) < 0.01);
    adaptdl::destroy_process_group();
  });
  CAPTURE(job.errors());
  CHECK(codes == std::vector<int>{0, 0});
  CHECK(job.errors().find("'adaptdl-dataparallel': NaN or infinite gradients in step 5 of epoch 1") !=
        std::string::npos);
}

TEST_CASE("after a restart in a later loop, a finished loop keeps its batch size") {
  for (const int replicas : {1, 2}) {
    const ElasticJob job;
    const auto program = [&](int rank) {
      Loader train(Numbers(24), {.batch_size = 4});
      train.autoscale_batch_size(4, {.max = 1}, true);
      Loader valid(Numbers(8), {.batch_size = 2});
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        for ([[maybe_unused]] auto& batch : train) {
        }
        for ([[maybe_unused]] auto& batch : valid) {
          if (job.count_checkpoints() == 0 && rank == 0) raise(SIGTERM);
        }
        const auto& helper = train.helper();
        EXPECT(helper.current_local_bsz() == 1);
        EXPECT(helper.accumulation_steps() == (replicas == 1 ? 3 : 1));
        EXPECT(helper.current_batch_size() == 4);
      }
    };
    job.run_to(143, replicas, program);
    job.run_to(0, replicas, program);
  }
}

TEST_CASE("after steps with invalid gradients, only requested checkpoints are saved") {
  const ElasticJob job;
  job.run_to(0, 2, [&](int rank) {
    setenv("ADAPTDL_CHECKPOINT_EVERY", "1ms", 1);
    Loader loader(Numbers(160), {.batch_size = 4});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      int step = 0, valid = -1, asked = -1;
      for ([[maybe_unused]] auto& batch : loader) {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        ++step;
        adaptdl::internal::note_step("model", step < 10 || step >= 30);
        if (rank != 0) continue;
        if (step == 10) valid = job.newest_checkpoint();
        if (step == 20) {
          EXPECT(valid > 0 && job.newest_checkpoint() == valid);
          raise(SIGUSR1);
        }
        if (step == 28) asked = job.newest_checkpoint();
        if (step == 28) EXPECT(asked == valid + 1);
        if (step == 38) EXPECT(job.newest_checkpoint() > asked);
      }
    }
  });
}

}  // namespace adaptive_restart_test
