// Tests steps when the batch size grows, the job resumes, or losses are scaled.
#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "adaptdl/checkpoint.h"
#include "adaptdl/error.h"
#include "adaptdl/torch/amp.h"
#include "adaptdl/torch/data_loader_helper.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "elastic_job.h"
#include "error_of.h"
#include "loop/batch_size_choice.h"
#include "replica_processes.h"
#include "step_loops.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace adaptive_step_test {

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

TEST_CASE("the learning rate is scaled per group during a step, and progress grows by the gain") {
  struct Rule : adaptdl::ScalingRuleBase {
    std::vector<double> scale_lr(double scale) override {
      scales.push_back(scale);
      return factors;
    }
    std::vector<double> scales, factors{3, 5};
  };
  expect_replicas(1, [](int) {
    adaptdl::init_process_group("gloo");
    nn::Linear net(1, 1);
    std::vector<optim::OptimizerParamGroup> groups{{{net->weight}, std::make_unique<optim::SGDOptions>(0.1)},
                                                   {{net->bias}, std::make_unique<optim::SGDOptions>(0.01)}};
    Adaptive<optim::SGD> optimizer(std::move(groups), optim::SGDOptions(1));
    const auto rule = std::make_shared<Rule>();
    AdaptiveDataParallel model(net, optimizer, DataParallelOptions{.scaling_rule = rule});
    loop_at_scales({1, 1, 4}, [&](int) {
      const double weight = net->weight.item<double>(), bias = net->bias.item<double>();
      optimizer.zero_grad();
      model(torch::ones({1, 1})).sum().backward();
      optimizer.step();
      EXPECT(std::abs(weight - net->weight.item<double>() - 0.3) < 1e-6);
      EXPECT(std::abs(bias - net->bias.item<double>() - 0.05) < 1e-6);
      EXPECT(optimizer.param_groups()[0].options().get_lr() == 0.1);
      EXPECT(optimizer.param_groups()[1].options().get_lr() == 0.01);
    });
    EXPECT(rule->scales == std::vector<double>{1, 1, 4});
    // Equal gradients have no noise, so a larger batch gains nothing.
    EXPECT(std::abs(model.gns().progress() - 3) < 1e-3);
    rule->factors = {1, 2, 3};
    try {
      model(torch::ones({1, 1})).sum().backward();
      optimizer.step();
      EXPECT(false);
    } catch (const adaptdl::UsageError& error) {
      EXPECT(std::string(error.what()).find("3 factors for 2 parameter groups") != std::string::npos);
    }
  });
}

TEST_CASE("a program without a loader can set the scale and progress and discard a started step") {
  struct Rule : adaptdl::ScalingRuleBase {
    std::vector<double> scale_lr(double scale) override {
      scales.push_back(scale);
      return {1};
    }
    std::vector<double> scales;
  };
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
    const auto rule = std::make_shared<Rule>();
    AdaptiveDataParallel model(net, optimizer, DataParallelOptions{.scaling_rule = rule});
    const auto pass = [&](int step) { model(inputs(rank, step)).square().mean().backward(); };
    pass(0), optimizer.step(), optimizer.zero_grad();
    model.set_accum_scale(3);
    pass(1), optimizer.step(), optimizer.zero_grad();
    EXPECT(rule->scales == std::vector<double>{1, 3});
    EXPECT(model.accum_scale() == 3);
    EXPECT(model.accum_count() == 1);
    model.set_progress(40);
    EXPECT(model.gns().progress() == 40);
    EXPECT(model.should_zero_grad());
    {
      auto no_sync = model.no_sync();
      pass(2);
    }
    EXPECT(!model.should_zero_grad());
    const auto before = flat(*net);
    model.reset_accumulation();
    EXPECT(model.should_zero_grad());
    optimizer.step();
    EXPECT(torch::equal(flat(*net), before));
    EXPECT(says(error_of<adaptdl::UsageError>([&] { model.set_accum_scale(0); }), "accum_scale must be above 0"));
    EXPECT(says(error_of<adaptdl::UsageError>([&] { model.set_progress(-1); }), "progress must be 0 or more"));
    adaptdl::destroy_process_group();
  });
}

TEST_CASE("scaling rules return the factors of their papers") {
  expect_replicas(1, [](int) {
    adaptdl::init_process_group("gloo");
    const auto factors_of = [](std::shared_ptr<adaptdl::ScalingRuleBase> rule) {
      auto net = small_model();
      Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
      AdaptiveDataParallel model(net, optimizer, DataParallelOptions{.scaling_rule = rule});
      return rule->scale_lr(16)[0];
    };
    // Without any estimate, the noise is assumed to be zero, so there is nothing to gain.
    EXPECT(std::abs(factors_of(std::make_shared<adaptdl::AdaScale>()) - 1) < 1e-5);
    EXPECT(std::abs(factors_of(std::make_shared<adaptdl::AdamScale>()) - 1) < 1e-5);
    EXPECT(factors_of(std::make_shared<adaptdl::LinearScale>()) == 16);
    EXPECT(factors_of(std::make_shared<adaptdl::SqrtScale>()) == 4);
    try {
      adaptdl::AdaScale().step();
      EXPECT(false);
    } catch (const adaptdl::UsageError& error) {
      EXPECT(std::string(error.what()).find("has no model") != std::string::npos);
    }
  });
}

TEST_CASE("LEGW extends its warm-up in proportion to the scale") {
  expect_replicas(1, [](int) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
    const auto rule = std::make_shared<adaptdl::LEGWScale>(0.5, 16);  // warm-up: one step at the initial batch size
    AdaptiveDataParallel model(net, optimizer, DataParallelOptions{.scaling_rule = rule});
    loop_at_scales({1, 1, 1}, [&](int step) {
      EXPECT(std::abs(rule->scale_lr(4)[0] - 2 * std::min(1.0, step / 4.0)) < 1e-9);
      optimizer.zero_grad();
      model(inputs(0, 1)).square().mean().backward();
      optimizer.step();
    });
  });
}

TEST_CASE("Adam's moments are reset when the scale changes, and only then") {
  expect_replicas(1, [](int rank) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    Adaptive<optim::Adam> optimizer(net->parameters(), optim::AdamOptions(1e-3));
    AdaptiveDataParallel model(net, optimizer);
    EXPECT(dynamic_cast<adaptdl::AdamScale*>(model.scaling_rule()) != nullptr);
    std::vector<std::int64_t> steps;
    loop_at_scales({1, 1, 1, 4, 4, 1}, [&](int step) {
      optimizer.zero_grad();
      model(inputs(rank, step)).square().mean().backward();
      optimizer.step();
      steps.push_back(static_cast<optim::AdamParamState&>(*optimizer.state().begin()->second).step());
    });
    EXPECT(steps == std::vector<std::int64_t>{1, 2, 3, 1, 2, 1});
  });
}

TEST_CASE("an adaptive batch size without an adaptive optimizer is rejected, and the error suggests a remedy") {
  expect_replicas(1, [](int rank) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    optim::SGD optimizer(net->parameters(), 0.1);
    AdaptiveDataParallel model(net, optimizer);
    try {
      loop_at_scales({1}, [&](int) { model(inputs(rank, 0)); });
      EXPECT(false);
    } catch (const adaptdl::UsageError& error) {
      EXPECT(std::string(error.what()).find("Adaptive<torch::optim::SGD>") != std::string::npos);
    }
  });
}

TEST_CASE("a resumed job restores the noise scale, the progress and the previous gradient") {
  const testing::ElasticJob job;
  const auto program = [&](int first, int last, bool save) {
    return [&job, first, last, save](int) {
      job.prepare();
      adaptdl::init_process_group("gloo");
      auto net = small_model();
      Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
      AdaptiveDataParallel model(net, optimizer);
      for (int step = first; step < last; ++step) {
        optimizer.zero_grad();
        model(inputs(0, step)).square().mean().backward();
        optimizer.step();
      }
      if (save) adaptdl::checkpoint::save_all_states();
      job.note(fmt::format("{} {} {} {}", model.gns().save().dump(), model.gain(), model.gns().progress(),
                           flat(*net).sum().item<double>()));
    };
  };
  expect_replicas(1, program(0, 6, false));
  expect_replicas(1, program(0, 3, true));
  expect_replicas(1, program(3, 6, false));
  const auto notes = job.notes();
  REQUIRE(notes.size() == 3);
  CHECK(notes[2] == notes[0]);
  CHECK(notes[1] != notes[0]);
}

TEST_CASE("loss scaling does not affect the noise scale, and overflow skips the step on all replicas") {
  for (const int replicas : {1, 2}) {
    expect_replicas(replicas, [&](int rank) {
      adaptdl::init_process_group("gloo");
      auto net = small_model(), reference = small_model();
      Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
      Adaptive<optim::SGD> reference_optimizer(reference->parameters(), optim::SGDOptions(0.1));
      adaptdl::GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
      AdaptiveDataParallel model(net, optimizer, DataParallelOptions{.grad_scaler = &scaler});
      AdaptiveDataParallel plain(reference, reference_optimizer, DataParallelOptions{.name = "reference"});
      for (int step = 0; step < 5; ++step) {
        const bool overflow = step == 2;
        const auto before = flat(*net);
        // Only one replica overflows.
        const double infinite = overflow && rank == replicas - 1 ? std::numeric_limits<double>::infinity() : 1.0;
        optimizer.zero_grad();
        scaler.scale(model(inputs(rank, step)).square().mean() * infinite).backward();
        EXPECT(scaler.step(optimizer) == !overflow);
        scaler.update();
        if (overflow) {
          EXPECT(flat(*net).equal(before));
          continue;
        }
        reference_optimizer.zero_grad();
        plain(inputs(rank, step)).square().mean().backward();
        reference_optimizer.step();
      }
      EXPECT(scaler.scale() == 2048);  // doubled, halved and doubled again
      EXPECT(torch::allclose(flat(*net), flat(*reference), 1e-5, 1e-6));
      EXPECT(std::abs(model.gns().progress() - plain.gns().progress()) < 1e-4);
      // With one replica, the step after the overflow has no previous gradient to be compared with.
      if (replicas > 1) EXPECT(std::abs(model.gns().sqr_avg() / plain.gns().sqr_avg() - 1) < 1e-4);
    });
  }
}

TEST_CASE("autocast computes in half precision and can be nested") {
  expect_replicas(1, [](int) {
    const auto x = torch::randn({2, 4}), w = torch::randn({4, 4});
    {
      const adaptdl::Autocast outer(at::kCPU);
      EXPECT(torch::mm(x, w).scalar_type() == at::kBFloat16);
      {
        const adaptdl::Autocast inner(at::kCPU, at::kBFloat16, false);
        EXPECT(torch::mm(x, w).scalar_type() == at::kFloat);
      }
      EXPECT(torch::mm(x, w).scalar_type() == at::kBFloat16);
    }
    EXPECT(torch::mm(x, w).scalar_type() == at::kFloat);
    try {
      const adaptdl::Autocast wrong(at::kCPU, at::kDouble);
      EXPECT(false);
    } catch (const adaptdl::UsageError&) {
    }
  });
}

TEST_CASE("training under bf16 autocast reduces the loss and yields a noise scale") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    Adaptive<optim::AdamW> optimizer(net->parameters(), optim::AdamWOptions(0.02));
    AdaptiveDataParallel model(net, optimizer);
    double first = 0, last = 0;
    for (int step = 0; step < 60; ++step) {
      at::Tensor loss;
      {
        const adaptdl::Autocast autocast(at::kCPU);
        loss = (model(inputs(rank, step)).to(at::kFloat) - 1).square().mean();
      }
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      (step == 0 ? first : last) = loss.item<double>();
    }
    EXPECT(last < 0.5 * first);
    EXPECT(model.gns().known() && std::isfinite(model.gns().var_avg()));
  });
}

}  // namespace adaptive_step_test
