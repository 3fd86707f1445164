// Tests passes that keep their gradients on each replica until one pass averages the sum of all of them.
#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/signal.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "elastic_job.h"
#include "error_of.h"
#include "numbers.h"
#include "replica_processes.h"
#include "step_loops.h"

#include <doctest/doctest.h>

namespace no_sync_test {

namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using adaptdl::Adaptive;
using adaptdl::AdaptiveDataParallel;
using adaptdl::DataParallelOptions;
using ::testing::error_of;
using testing::expect_replicas;
using testing::flat;
using testing::inputs;
using ::testing::says;
using testing::small_model;

}  // namespace

TEST_CASE("a step sums the gradients of its passes and averages them across replicas") {
  for (const int replicas : {1, 2}) {
    for (const bool view : {false, true}) {
      expect_replicas(replicas, [&](int rank) {
        adaptdl::init_process_group("gloo");
        auto net = small_model(), reference = small_model();
        optim::SGD optimizer(net->parameters(), 0.1), reference_optimizer(reference->parameters(), 0.1);
        AdaptiveDataParallel model(net, optimizer, DataParallelOptions{.gradient_as_bucket_view = view});
        for (int step = 0; step < 4; ++step) {
          if (view) {
            for (auto& param : net->parameters()) {
              if (param.grad().defined()) param.mutable_grad().zero_();
            }
          } else {
            optimizer.zero_grad();
          }
          reference_optimizer.zero_grad();
          for (int pass = 0; pass < 3; ++pass) {
            const auto batch = 10 * step + pass;
            std::optional<decltype(model)::NoSync> no_sync;
            if (pass < 2) no_sync.emplace(model.no_sync());
            model(inputs(rank, batch)).square().mean().backward();
            for (int each = 0; each < replicas; ++each)
              (reference->forward(inputs(each, batch)).square().mean() / replicas).backward();
          }
          for (std::size_t i = 0; i < net->parameters().size(); ++i)
            EXPECT(torch::allclose(net->parameters()[i].grad(), reference->parameters()[i].grad(), 1e-5, 1e-6));
          optimizer.step();
          reference_optimizer.step();
        }
        EXPECT(torch::allclose(flat(*net), flat(*reference), 1e-5, 1e-6));
        adaptdl::destroy_process_group();
      });
    }
  }
}

TEST_CASE("a step after only unsynchronized backward passes is rejected") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
    AdaptiveDataParallel model(net, optimizer);
    {
      auto no_sync = model.no_sync();
      model(inputs(rank, 0)).sum().backward();
    }
    EXPECT(
        says(error_of<adaptdl::UsageError>([&] { optimizer.step(); }), "step() after a backward pass under no_sync()"));
  });
}

namespace {

// Trains on two replicas with steps of two batches, interrupted at batch `stop_at`. Returns the parameter.
std::string train_to(int stop_at) {
  constexpr int kBatches = 6;
  const testing::ElasticJob job;
  const auto run = [&](bool stops) {
    return testing::run_replicas(2, [&](int rank) {
      job.prepare();
      adaptdl::init_process_group("gloo");
      nn::Linear net(nn::LinearOptions(1, 1).bias(false));
      torch::NoGradGuard{}, nn::init::ones_(net->weight);
      Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.01));
      AdaptiveDataParallel model(net, optimizer);
      adaptdl::AdaptiveDataLoader loader(testing::Numbers(2 * kBatches), {.batch_size = 2});
      for ([[maybe_unused]] const int epoch : adaptdl::remaining_epochs_until(1)) {
        for (auto& batch : loader) {
          const auto number = static_cast<int>(*loader.helper().current_index() / 2);
          if (stops && number == stop_at && rank == 1) adaptdl::signal::request_stop(SIGTERM);
          std::optional<decltype(model)::NoSync> no_sync;
          if (number % 2 == 0) no_sync.emplace(model.no_sync());
          model(batch.data.to(torch::kFloat).view({-1, 1})).mean().backward();
          if (number % 2 == 0) continue;
          optimizer.step();
          optimizer.zero_grad();
        }
      }
      EXPECT(std::abs(model.gns().progress() - kBatches) < 1e-6);
      if (rank == 0) job.note(fmt::format("{:a}", net->weight.item<double>()));
      adaptdl::destroy_process_group();
    });
  };
  auto codes = run(true);
  if (codes[0] == 143) codes = run(false);
  if (codes != std::vector<int>{0, 0}) throw std::runtime_error(job.errors());
  return job.notes().at(0);
}

}  // namespace

TEST_CASE("a stop never separates the batches of one step, and each batch counts as progress" *
          doctest::test_suite("slow")) {
  const auto whole = train_to(-1);
  for (int stop_at = 0; stop_at < 5; ++stop_at) CHECK(train_to(stop_at) == whole);
}

TEST_CASE("unsynchronized gradients left after a step do not delay a stop") {
  const testing::ElasticJob job;
  const auto codes = testing::run_replicas(2, [&](int rank) {
    job.prepare();
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    optim::SGD optimizer(net->parameters(), 0.01);
    AdaptiveDataParallel model(net, optimizer);
    adaptdl::AdaptiveDataLoader loader(testing::Numbers(200), {.batch_size = 2});
    int batches = 0;
    for ([[maybe_unused]] const int epoch : adaptdl::remaining_epochs_until(1)) {
      for ([[maybe_unused]] auto& batch : loader) {
        if (++batches == 3 && rank == 0) adaptdl::signal::request_stop(SIGTERM);
        EXPECT(batches < 6);
        optimizer.zero_grad();
        model(inputs(rank, 0)).sum().backward();
        optimizer.step();
        const auto no_sync = model.no_sync();
        model(inputs(rank, 1)).sum().backward();
      }
    }
  });
  CHECK(codes == std::vector<int>{143, 143});
}

TEST_CASE("an unfinished no_sync() step at the end of a loop is discarded") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    nn::Linear net(nn::LinearOptions(4, 1).bias(false));
    Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0));
    AdaptiveDataParallel model(net, optimizer);
    adaptdl::AdaptiveDataLoader loader(testing::Numbers(6), {.batch_size = 2});
    for ([[maybe_unused]] const int epoch : adaptdl::remaining_epochs_until(2)) {
      int number = 0;
      for ([[maybe_unused]] auto& batch : loader) {
        const bool last = number++ % 2 == 1;
        EXPECT(loader.helper().is_last_batch() == (number == 3));
        std::optional<decltype(model)::NoSync> no_sync;
        if (!last) no_sync.emplace(model.no_sync());
        model(inputs(rank, number)).sum().backward();
        if (!last) continue;
        const auto mean = (inputs(0, 1) + inputs(0, 2) + inputs(1, 1) + inputs(1, 2)).sum(0) / 2;
        EXPECT(torch::allclose(net->weight.grad().flatten(), mean, 1e-5, 1e-6));
        optimizer.step();
        optimizer.zero_grad();
      }
    }
    adaptdl::destroy_process_group();
  });
}

TEST_CASE("parameters used only in unsynchronized passes also get their mean gradient") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    torch::manual_seed(2);
    nn::ModuleList net(nn::Linear(nn::LinearOptions(4, 1).bias(false)),
                       nn::Linear(nn::LinearOptions(4, 1).bias(false)));
    struct Branches : nn::Module {
      explicit Branches(nn::ModuleList list) : branches(register_module("branches", std::move(list))) {}
      at::Tensor forward(const at::Tensor& x, std::size_t branch) {
        return branches->at<nn::LinearImpl>(branch).forward(x);
      }
      nn::ModuleList branches;
    };
    auto module = std::make_shared<Branches>(net);
    Adaptive<optim::SGD> optimizer(module->parameters(), optim::SGDOptions(0));
    AdaptiveDataParallel model(module, optimizer, DataParallelOptions{.find_unused_parameters = true});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      {
        const auto no_sync = model.no_sync();
        model(inputs(rank, step), 1 - static_cast<std::size_t>(rank == 1 && step == 2)).sum().backward();
      }
      model(inputs(rank, 10 + step), 0).sum().backward();
      auto second = inputs(0, step).sum(0) / 2;
      if (step < 2) second += inputs(1, step).sum(0) / 2;
      EXPECT(torch::allclose(module->parameters()[1].grad().flatten(), second, 1e-5, 1e-6));
      auto first = (inputs(0, 10 + step) + inputs(1, 10 + step)).sum(0) / 2;
      if (step == 2) first += inputs(1, step).sum(0) / 2;
      EXPECT(torch::allclose(module->parameters()[0].grad().flatten(), first, 1e-5, 1e-6));
      optimizer.step();
    }
    adaptdl::destroy_process_group();
  });
}

}  // namespace no_sync_test
