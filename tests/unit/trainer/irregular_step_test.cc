// Tests irregular steps: NaN gradients, overflows, backward passes that a replica skips, interrupted accumulation, and
// passes that are rejected.
#include <torch/torch.h>

#include <cmath>
#include <string>
#include <utility>

#include "adaptdl/error.h"
#include "adaptdl/torch/data_loader_helper.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "error_of.h"
#include "replica_processes.h"
#include "step_loops.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace irregular_step_test {

namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using adaptdl::Adaptive;
using adaptdl::AdaptiveDataLoaderHelper;
using adaptdl::AdaptiveDataParallel;
using adaptdl::DataParallelOptions;
using adaptdl::remaining_epochs_until;
using ::testing::error_of;
using testing::expect_replicas;
using testing::flat;
using testing::inputs;
using testing::kLocalBatch;
using testing::loop;
using testing::loop_at_scales;
using ::testing::says;
using testing::small_model;

}  // namespace

TEST_CASE("a step with a NaN gradient is left out of the noise scale, and the next gradient is not compared with it") {
  expect_replicas(1, [](int) {
    adaptdl::init_process_group("gloo");
    nn::Linear net(nn::LinearOptions(2, 1).bias(false));
    Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0));
    AdaptiveDataParallel model(net, optimizer);
    for (const auto& gradient : {at::tensor({1.0F, 0.0F}), at::tensor({NAN, 0.0F}), at::tensor({9.0F, 9.0F}),
                                 at::tensor({NAN, 0.0F}), at::tensor({1.0F, 0.0F}), at::tensor({0.0F, 1.0F})}) {
      optimizer.zero_grad();
      model(gradient.unsqueeze(0)).sum().backward();
      optimizer.step();
    }
    // The last two gradients have squared norm 1, and their mean has squared norm 1/2.
    EXPECT(std::abs(model.gns().raw_sqr_avg()[0]) < 1e-6);
    EXPECT(std::abs(model.gns().raw_var_avg()[0] - 1) < 1e-6);
    EXPECT(std::abs(model.gns().progress() - 4) < 1e-6);
  });
}

TEST_CASE("with stop_on_nan, all replicas fail at the first NaN gradient on any of them") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
    AdaptiveDataParallel model(net, optimizer, DataParallelOptions{.stop_on_nan = true});
    const auto step = [&](double factor) {
      optimizer.zero_grad();
      (factor * model(inputs(rank, 0)).sum()).backward();
      return error_of([&] { optimizer.step(); });
    };
    EXPECT(step(1) == "");
    const auto before = flat(*net);
    EXPECT(
        says(step(rank == 1 ? NAN : 1), "'adaptdl-dataparallel': NaN or infinite gradients; lower the learning rate"));
    EXPECT(flat(*net).equal(before));
    optim::SGD plain(net->parameters(), 0.1);
    EXPECT(says(error_of<adaptdl::UsageError>([&] {
                  AdaptiveDataParallel other(net, plain, DataParallelOptions{.name = "other", .stop_on_nan = true});
                }),
                "'other': stop_on_nan requires an Adaptive optimizer or a scaling rule"));
    adaptdl::destroy_process_group();
  });
}

TEST_CASE("two backward passes per batch are rejected if the loader accumulates gradients") {
  for (const int bad : {0, 1}) {
    expect_replicas(2, [&](int rank) {
      adaptdl::init_process_group("gloo");
      auto net = small_model();
      Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
      AdaptiveDataParallel model(net, optimizer);
      std::string error;
      try {
        loop(2, 1, 1, [&](int batch) {
          model(inputs(rank, batch)).sum().backward();
          if (batch == bad) model(inputs(rank, 9)).sum().backward();
          optimizer.step();
        });
      } catch (const adaptdl::UsageError& thrown) {
        error = thrown.what();
      }
      EXPECT(says(error, "'adaptdl-dataparallel': no forward pass may follow a backward pass in one batch of"));
      EXPECT(says(error, "call backward() once"));
    });
  }
}

TEST_CASE("manual accumulation is rejected with an adaptive batch size, but discarding gradients is allowed") {
  expect_replicas(1, [](int rank) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
    AdaptiveDataParallel model(net, optimizer);
    loop_at_scales({1, 1, 1, 1}, [&](int batch) {
      if (batch == 1) optimizer.zero_grad();  // drops the gradients, as after an overflow
      model(inputs(rank, batch)).sum().backward();
      if (batch == 0 || batch == 2) return;
      const auto error = error_of<adaptdl::UsageError>([&] { optimizer.step(); });
      optimizer.zero_grad();
      EXPECT((error == "") == (batch == 1));
      EXPECT(error == "" || says(error, "'adaptdl-dataparallel': 2 backward passes before one step"));
    });
  });
}

TEST_CASE("after a step that is skipped because of an overflow, the next accumulated step makes progress") {
  for (const int replicas : {1, 2}) {
    expect_replicas(replicas, [&](int rank) {
      adaptdl::init_process_group("gloo");
      auto net = small_model();
      Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0));
      AdaptiveDataParallel model(net, optimizer);
      loop(replicas, 1, 3, [&](int batch) {
        optimizer.zero_grad();
        const bool overflows = batch / 2 == 1;
        (model(inputs(rank, batch)).square().mean() * (overflows ? INFINITY : 1.0)).backward();
        if (!overflows) optimizer.step();
      });
      EXPECT(std::abs(model.gns().progress() - 2) < 1e-9);
      EXPECT(model.gain() > 0 && model.gns().known());
      adaptdl::destroy_process_group();
    });
  }
}

TEST_CASE("a backward pass skipped by one replica contributes zeros to the accumulated step") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    nn::Linear net(nn::LinearOptions(4, 1).bias(false));
    Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
    AdaptiveDataParallel model(net, optimizer);
    loop(2, 2, 1, [&](int batch) {
      const auto before = net->weight.detach().clone();
      optimizer.zero_grad();
      const auto loss = model(inputs(rank, batch)).sum();
      if (rank == 1 || batch != 1) loss.backward();
      optimizer.step();
      if (batch < 2) return;
      auto sum = torch::zeros({4});
      for (int each = 0; each < 2; ++each) {
        for (int earlier = 0; earlier < 3; ++earlier) {
          if (each == 1 || earlier != 1) sum += inputs(each, earlier).sum(0);
        }
      }
      EXPECT(torch::allclose(before - net->weight.detach(), 0.1 * sum.unsqueeze(0) / 6, 1e-4, 1e-6));
    });
    EXPECT(model.gns().known());
    adaptdl::destroy_process_group();
  });
}

TEST_CASE("manual accumulation across steps is rejected if the loader accumulates gradients") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
    AdaptiveDataParallel model(net, optimizer);
    loop(2, 1, 2, [&](int batch) {
      model(inputs(rank, batch)).sum().backward();
      if (batch < 3) return;
      EXPECT(says(error_of<adaptdl::UsageError>([&] { optimizer.step(); }), "accumulates gradients itself"));
    });
  });
}

TEST_CASE("an accumulation interrupted by a break is discarded") {
  expect_replicas(1, [](int rank) {
    adaptdl::init_process_group("gloo");
    auto net = small_model(), reference = small_model();
    Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
    optim::SGD plain(reference->parameters(), 0.1);
    AdaptiveDataParallel model(net, optimizer);
    AdaptiveDataLoaderHelper loader(2 * kLocalBatch);
    loader.autoscale_batch_size(2 * kLocalBatch, {.max = kLocalBatch}, true);
    for (const int epoch : remaining_epochs_until(2)) {
      const auto context = loader.context();
      loader.skipdone();
      loader.sync_local_bsz();
      for (int batch = epoch; batch < 3; ++batch) {
        if (epoch == 0 && batch == 1) break;
        const auto profile = loader.profile(false);
        optimizer.zero_grad();
        model(inputs(rank, batch)).square().mean().backward();
        optimizer.step();
        loader.advance();
      }
    }
    for (const int batch : {1, 2}) (reference->forward(inputs(rank, batch)).square().mean() / 2).backward();
    plain.step();
    EXPECT(torch::allclose(flat(*net), flat(*reference), 1e-6, 1e-7));
    // Another accumulation is interrupted, followed by a step outside of any loop.
    for ([[maybe_unused]] const int epoch : remaining_epochs_until(3)) {
      const auto context = loader.context();
      loader.skipdone();
      loader.sync_local_bsz();
      const auto profile = loader.profile(false);
      model(inputs(rank, 0)).square().mean().backward();
    }
    for (const auto& [module, steps] :
         {std::pair<nn::Sequential, optim::Optimizer*>{net, &optimizer}, {reference, &plain}}) {
      steps->zero_grad();
      const auto x = inputs(rank, 5);
      (module.ptr() == net.ptr() ? model(x) : reference->forward(x)).square().mean().backward();
      steps->step();
    }
    EXPECT(torch::allclose(flat(*net), flat(*reference), 1e-6, 1e-7));
  });
}

}  // namespace irregular_step_test
