// Tests schedulers across restarts.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/torch/lr_scheduler.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "lr_scheduler_support.h"
#include "replica_processes.h"
#include "temporary_directory.h"

namespace lr_scheduler_restart_test {

namespace {

namespace optim = torch::optim;
using namespace adaptdl;
using lr_scheduler_support::lr_of;
using lr_scheduler_support::parameter;
using testing::expect_replicas;

struct Net : torch::nn::Module {
  Net() : linear(register_module("linear", torch::nn::Linear(2, 1))) {}
  at::Tensor forward(const at::Tensor& x) { return linear(x); }
  torch::nn::Linear linear;
};

// Runs a job of one replica in its own process, with the scheduler that `make(optimizer)` returns.
template <class Make, class Use>
void with_job(const testing::TemporaryDirectory& directory, Make make, Use use) {
  expect_replicas(1, [&](int) {
    setenv("ADAPTDL_CHECKPOINT_PATH", directory.path().c_str(), 1);
    init_process_group("gloo");
    auto net = std::make_shared<Net>();
    optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
    auto scheduler = make(optimizer);
    AdaptiveDataParallel model(net, optimizer, *scheduler);
    use(*scheduler, optimizer);
    destroy_process_group();
  });
}

// Steps a job `steps` times with an interruption after each of `stops`. The rates must be bitwise equal to those
// without interruptions.
template <class Make, class Step>
void check_restarts(Make make, Step step, int steps = 24, const std::set<int>& stops = {1, 5, 6, 13}) {
  std::vector<double> whole;
  {
    optim::SGD optimizer({parameter()}, optim::SGDOptions(0.1).momentum(0.9));
    auto scheduler = make(optimizer);
    for (int i = 0; i < steps; ++i) {
      step(*scheduler, i);
      whole.push_back(lr_of(optimizer, 0));
      whole.push_back(static_cast<optim::SGDOptions&>(optimizer.param_groups()[0].options()).momentum());
    }
  }
  const testing::TemporaryDirectory directory;
  int next = 0;
  for (int end : stops) {
    with_job(directory, make, [&](auto& scheduler, auto& optimizer) {
      for (int i = next; i < end; ++i) step(scheduler, i);
      EXPECT(lr_of(optimizer, 0) == whole[static_cast<std::size_t>(2 * (end - 1))]);
      adaptdl::checkpoint::save_all_states();
    });
    next = end;
  }
  with_job(directory, make, [&](auto& scheduler, auto& optimizer) {
    for (int i = next; i < steps; ++i) {
      EXPECT(lr_of(optimizer, 0) == whole[static_cast<std::size_t>(2 * (i - 1))]);
      step(scheduler, i);
      EXPECT(lr_of(optimizer, 0) == whole[static_cast<std::size_t>(2 * i)]);
      EXPECT(static_cast<optim::SGDOptions&>(optimizer.param_groups()[0].options()).momentum() ==
             whole[static_cast<std::size_t>(2 * i + 1)]);
    }
  });
}

// A warm-up and the schedule that follows it, in one object.
struct WarmupThenCosine {
  explicit WarmupThenCosine(optim::Optimizer& optimizer)
      : cosine(optimizer, 17), warmup(optimizer, cosine, {.steps = 7}) {}
  operator optim::LRScheduler&() { return warmup; }
  CosineAnnealingLR cosine;
  LinearWarmup warmup;
};

}  // namespace

TEST_CASE("schedulers resume bit for bit after several restarts" * doctest::test_suite("slow")) {
  const auto by_step = [](auto& scheduler, int) { scheduler.step(); };
  SUBCASE("cosine") {
    check_restarts([](auto& optimizer) { return std::make_unique<CosineAnnealingLR>(optimizer, 20, 0.003); }, by_step);
  }
  SUBCASE("one cycle") {
    check_restarts(
        [](auto& optimizer) {
          return std::make_unique<OneCycleLR>(optimizer, OneCycleOptions{.max_lr = {0.7}, .total_steps = 20});
        },
        by_step);
  }
  SUBCASE("multi-step") {
    check_restarts(
        [](auto& optimizer) {
          return std::make_unique<MultiStepLR>(optimizer, std::vector<double>{5, 6, 19});
        },
        by_step);
  }
  SUBCASE("LibTorch's StepLR") {
    check_restarts([](auto& optimizer) { return std::make_unique<optim::StepLR>(optimizer, 3, 0.7); }, by_step);
  }
  SUBCASE("warm-up, then cosine") {
    check_restarts([](auto& optimizer) { return std::make_unique<WarmupThenCosine>(optimizer); },
                   [](auto& both, int) { both.warmup.step(); });
  }
  SUBCASE("plateau") {
    check_restarts(
        [](auto& optimizer) {
          return std::make_unique<ReduceLROnPlateau>(optimizer, ReduceLROnPlateauOptions{.patience = 3, .cooldown = 2});
        },
        [](auto& scheduler, int i) { scheduler.step(1.0 / (1 + std::min(i, 4))); });
  }
}

TEST_CASE("a scheduler other than the checkpoint's is rejected, and the error names both") {
  const testing::TemporaryDirectory directory;
  with_job(
      directory, [](auto& optimizer) { return std::make_unique<CosineAnnealingLR>(optimizer, 20); },
      [](auto&, auto&) { adaptdl::checkpoint::save_all_states(); });
  expect_replicas(1, [&](int) {
    setenv("ADAPTDL_CHECKPOINT_PATH", directory.path().c_str(), 1);
    init_process_group("gloo");
    auto net = std::make_shared<Net>();
    optim::SGD optimizer(net->parameters(), 0.1);
    const auto refusal = [&](optim::LRScheduler* scheduler) -> std::string {
      try {
        DataParallel model(net, optimizer, scheduler, {});
      } catch (const adaptdl::checkpoint::CheckpointError& error) {
        return error.what();
      }
      return {};
    };
    const auto says = [](const std::string& text, const std::string& part) {
      return text.find("state 'adaptdl-dataparallel' in ") != std::string::npos && text.find(part) != std::string::npos;
    };
    optim::StepLR step(optimizer, 3);
    EXPECT(says(refusal(&step),
                ": the LR scheduler is CosineAnnealingLR in the checkpoint, but StepLR in this program; "));
    EXPECT(says(refusal(nullptr),
                ": the LR scheduler is CosineAnnealingLR in the checkpoint, but this program has none; "));
    CosineAnnealingLR cosine(optimizer, 20);
    LinearWarmup warmup(optimizer, cosine, {.steps = 3});
    EXPECT(says(refusal(&warmup),
                ": the LR scheduler is CosineAnnealingLR in the checkpoint, but LinearWarmup in this program; "));
    EXPECT(refusal(&cosine).empty());
  });
}

}  // namespace lr_scheduler_restart_test
