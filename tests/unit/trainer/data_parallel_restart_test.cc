// Tests that model, optimizer and scheduler resume from a checkpoint, and that a checkpoint of another program is
// rejected.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/torch/adadelta.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "data_parallel_support.h"
#include "replica_processes.h"
#include "step_loops.h"
#include "temporary_directory.h"

namespace data_parallel_restart_test {

namespace {

namespace nn = torch::nn;
using adaptdl::AdaptiveDataParallel;
using adaptdl::DataParallelOptions;
using data_parallel_support::inputs;
using data_parallel_support::loss_of;
using data_parallel_support::small_model;
using testing::expect_replicas;
using testing::flat;

constexpr int kOptimizers = 6;

// Checks that a job on `replicas` replicas with one of the optimizers resumes bit for bit.
void resumes_bit_for_bit(int kind, int replicas) {
  const auto make = [kind](std::vector<at::Tensor> params) -> std::unique_ptr<torch::optim::Optimizer> {
    using namespace torch::optim;
    switch (kind) {
      case 0:
        return std::make_unique<SGD>(params, SGDOptions(0.1).momentum(0.9).nesterov(true));
      case 1:
        return std::make_unique<Adam>(params, AdamOptions(0.01).amsgrad(true));
      case 2:
        return std::make_unique<AdamW>(params, AdamWOptions(0.01));
      case 3:
        return std::make_unique<RMSprop>(params, RMSpropOptions(0.01).momentum(0.5).centered(true));
      case 4:
        return std::make_unique<Adagrad>(params, AdagradOptions(0.1));
      default:
        return std::make_unique<adaptdl::Adadelta>(params, adaptdl::AdadeltaOptions(0.5));
    }
  };
  CAPTURE(kind);
  CAPTURE(replicas);
  testing::TemporaryDirectory directory;
  const auto train = [&](int from, int to, bool save) {
    expect_replicas(replicas, [&](int rank) {
      adaptdl::init_process_group("gloo");
      auto net = small_model();
      auto optimizer = make(net->parameters());
      torch::optim::StepLR scheduler(*optimizer, 2, 0.5);
      AdaptiveDataParallel model(net, *optimizer, scheduler, DataParallelOptions{.bucket_cap_mb = 1});
      for (int step = from; step < to; ++step) {
        optimizer->zero_grad();
        loss_of(model(inputs(rank, step))).backward();
        optimizer->step();
        scheduler.step();
      }
      if (save) adaptdl::checkpoint::save_all_states();
      if (to == 6 && rank == 0)
        torch::save(flat(*net), (directory.path() / (from == 0 ? "whole.pt" : "resumed.pt")).string());
      adaptdl::destroy_process_group();
    });
  };
  train(0, 6, false);
  setenv("ADAPTDL_CHECKPOINT_PATH", (directory.path() / "checkpoints").c_str(), 1);
  train(0, 1, true);  // stops before the buckets are rebuilt
  train(1, 4, true);
  train(4, 6, false);
  unsetenv("ADAPTDL_CHECKPOINT_PATH");
  expect_replicas(1, [&](int) {
    at::Tensor whole, resumed;
    torch::load(whole, (directory.path() / "whole.pt").string());
    torch::load(resumed, (directory.path() / "resumed.pt").string());
    EXPECT(whole.equal(resumed));
  });
}

}  // namespace

TEST_CASE("model, optimizer and scheduler resume bit for bit with every optimizer" * doctest::test_suite("slow")) {
  for (int kind = 0; kind < kOptimizers; ++kind) resumes_bit_for_bit(kind, kind % 2 == 0 ? 3 : 1);
}

TEST_CASE("model, optimizer and scheduler resume bit for bit on one or more replicas" * doctest::test_suite("full")) {
  for (int kind = 0; kind < kOptimizers; ++kind) resumes_bit_for_bit(kind, kind % 2 == 0 ? 1 : 3);
}

TEST_CASE("loading a checkpoint that does not match the program fails and names the difference") {
  testing::TemporaryDirectory directory;
  setenv("ADAPTDL_CHECKPOINT_PATH", directory.path().c_str(), 1);
  expect_replicas(1, [](int) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    AdaptiveDataParallel model(net, optimizer);
    adaptdl::checkpoint::save_all_states();
  });
  expect_replicas(1, [](int) {
    adaptdl::init_process_group("gloo");
    const auto refusal = [](nn::Sequential net, std::unique_ptr<torch::optim::Optimizer> optimizer,
                            const std::string& name) {
      const auto before = flat(*net).clone();
      std::string text;
      try {
        AdaptiveDataParallel model(net, *optimizer, DataParallelOptions{.name = name});
      } catch (const adaptdl::checkpoint::CheckpointError& error) {
        text = error.what();
      }
      EXPECT(flat(*net).equal(before));
      return text;
    };
    const std::string usual = "adaptdl-dataparallel";
    const auto sgd = [](nn::Sequential& net) { return std::make_unique<torch::optim::SGD>(net->parameters(), 0.1); };
    auto wider = small_model(9);
    EXPECT(refusal(wider, sgd(wider), usual).find("model/0.weight") != std::string::npos);
    auto deeper = small_model();
    deeper->push_back(nn::Linear(2, 2));
    EXPECT(refusal(deeper, sgd(deeper), usual).find("model/3.weight") != std::string::npos);
    auto shallower = nn::Sequential(nn::Linear(4, 8));
    EXPECT(refusal(shallower, sgd(shallower), usual).find("tensors") != std::string::npos);
    auto same = small_model();
    EXPECT(refusal(same, std::make_unique<torch::optim::Adam>(same->parameters()), usual)
               .find("SGD in the checkpoint, Adam") != std::string::npos);
    EXPECT(refusal(same, sgd(same), "renamed").find("renamed") != std::string::npos);
  });
  unsetenv("ADAPTDL_CHECKPOINT_PATH");
}

}  // namespace data_parallel_restart_test
