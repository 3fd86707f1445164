// Tests that activation checkpointing yields the gradients, random numbers, buffers and noise scale of a plain pass.
#include "adaptdl/torch/activation_checkpoint.h"

#include <torch/torch.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/torch/amp.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "replica_processes.h"
#include "step_loops.h"

#include <doctest/doctest.h>

namespace activation_checkpoint_test {

namespace {

namespace nn = torch::nn;
using adaptdl::Adaptive;
using adaptdl::AdaptiveDataParallel;
using adaptdl::Autocast;
using adaptdl::checkpoint_activations;
using testing::expect_replicas;
using testing::flat;
using testing::inputs;

// Counts its passes, and reports whether its activations are still kept.
struct BlockImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    ++passes;
    auto hidden = dropout(norm(linear(x))).tanh();
    activation = hidden.getIntrusivePtr();
    return hidden * hidden;
  }
  bool keeps_activations() const { return !activation.expired(); }

  nn::Linear linear{register_module("linear", nn::Linear(4, 4))};
  nn::BatchNorm1d norm{register_module("norm", nn::BatchNorm1d(4))};
  nn::Dropout dropout{register_module("dropout", nn::Dropout(0.5))};
  int passes = 0;
  c10::weak_intrusive_ptr<c10::TensorImpl> activation{c10::intrusive_ptr<c10::TensorImpl>()};
};
TORCH_MODULE(Block);

struct NetImpl : nn::Module {
  explicit NetImpl(bool recomputes) : checkpointed(recomputes) {
    register_module("first", first);
    register_module("second", second);
  }
  at::Tensor forward(at::Tensor x) {
    if (!checkpointed) return second(first(x));
    x = checkpoint_activations(first, x);
    return checkpoint_activations(second, x);
  }
  Block first, second;
  bool checkpointed;
};
TORCH_MODULE(Net);

Net make_net(bool checkpointed) {
  torch::manual_seed(7);
  return Net(checkpointed);
}

std::vector<at::Tensor> buffers_of(const Net& net) {
  std::vector<at::Tensor> all;
  for (const auto& buffer : net->buffers()) all.push_back(buffer.clone());
  return all;
}

}  // namespace

TEST_CASE("with recomputed activations, gradients, dropout and running statistics match those of a plain pass") {
  expect_replicas(1, [](int) {
    for (const bool autocast : {false, true}) {
      std::vector<at::Tensor> parameters, input_gradients, random;
      std::vector<std::vector<at::Tensor>> buffers;
      for (const bool checkpointed : {false, true}) {
        auto net = make_net(checkpointed);
        torch::optim::SGD optimizer(net->parameters(), 0.1);
        torch::manual_seed(11);
        at::Tensor x;
        for (int step = 0; step < 3; ++step) {
          x = torch::randn({8, 4}).set_requires_grad(true);
          optimizer.zero_grad();
          at::Tensor loss;
          {
            const Autocast region(at::kCPU, at::kBFloat16, autocast);
            loss = net(x).sum();
          }
          EXPECT(net->first->keeps_activations() == !checkpointed);
          loss.backward();
          optimizer.step();
        }
        EXPECT(net->first->passes == (checkpointed ? 6 : 3));
        parameters.push_back(flat(*net));
        buffers.push_back(buffers_of(net));
        input_gradients.push_back(x.grad());
        random.push_back(torch::rand({4}));
      }
      EXPECT(torch::equal(parameters[0], parameters[1]));
      EXPECT(torch::equal(input_gradients[0], input_gradients[1]));
      EXPECT(torch::equal(random[0], random[1]));
      for (std::size_t i = 0; i < buffers[0].size(); ++i) EXPECT(torch::equal(buffers[0][i], buffers[1][i]));
    }
  });
}

TEST_CASE("with recomputed activations, averaged gradients and the noise scale match those of a plain pass") {
  for (const int replicas : {1, 2}) {
    expect_replicas(replicas, [](int rank) {
      adaptdl::init_process_group("gloo");
      std::vector<at::Tensor> parameters;
      std::vector<double> noise;
      for (const bool checkpointed : {false, true}) {
        auto net = make_net(checkpointed);
        Adaptive<torch::optim::SGD> optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
        AdaptiveDataParallel model(net, optimizer, {.name = checkpointed ? "checkpointed" : "plain"});
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad();
          model(inputs(rank, step)).sum().backward();
          optimizer.step();
        }
        parameters.push_back(flat(*net));
        noise.push_back(model.gns().var_avg());
      }
      EXPECT(torch::equal(parameters[0], parameters[1]));
      EXPECT(noise[0] == noise[1]);
      adaptdl::destroy_process_group();
    });
  }
}

namespace {

struct PairImpl : nn::Module {
  std::vector<at::Tensor> forward(const at::Tensor& a, const at::Tensor& b) { return {a * scale, b.detach(), a.argmax()}; }
  at::Tensor scale{register_parameter("scale", torch::ones({1}))};
  at::Tensor unused{register_parameter("unused", torch::ones({1}))};
};
TORCH_MODULE(Pair);

}  // namespace

TEST_CASE("a checkpointed part may have several inputs and outputs, some without a gradient, and unused parameters") {
  expect_replicas(1, [](int) {
    Pair pair;
    const auto a = torch::ones({2}).set_requires_grad(true), b = torch::ones({2}).set_requires_grad(true);
    const auto outputs = checkpoint_activations(pair, a, b);
    EXPECT(outputs.size() == 3);
    (outputs[0].sum() * 3).backward();
    EXPECT(pair->scale.grad().item<double>() == 6);
    EXPECT(!pair->unused.grad().defined());
    EXPECT(torch::equal(a.grad(), torch::full({2}, 3.0)));
    EXPECT(!b.grad().defined());
    const torch::NoGradGuard no_grad;
    EXPECT(!checkpoint_activations(pair, a, b)[0].requires_grad());
  });
}

namespace {

struct FailingImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const auto result = norm(linear(x)) * torch::rand({4});
    if (++passes == 2) throw std::runtime_error("out of memory");
    return result;
  }
  nn::Linear linear{register_module("linear", nn::Linear(4, 4))};
  nn::BatchNorm1d norm{register_module("norm", nn::BatchNorm1d(4))};
  int passes = 0;
};
TORCH_MODULE(Failing);

struct ScaleImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask = {}) {
    return mask.defined() ? x * weight * factor * mask : x * weight * factor;
  }
  at::Tensor weight = register_parameter("weight", torch::ones({2}));
  at::Tensor factor = register_buffer("factor", torch::full({2}, 3.0));
};
TORCH_MODULE(Scale);

}  // namespace

TEST_CASE("a failed recomputation leaves the random number generator and the buffers unchanged") {
  Failing part;
  const auto loss = checkpoint_activations(part, torch::randn({8, 4})).sum();
  const auto generator = at::globalContext().defaultGenerator(at::kCPU);
  const auto state = generator.get_state(), mean = part->norm->running_mean.clone();
  CHECK_THROWS_WITH_AS(loss.backward(), "out of memory", std::runtime_error);
  CHECK(generator.get_state().equal(state));
  CHECK(part->norm->running_mean.equal(mean));
  CHECK(part->norm->num_batches_tracked.item<std::int64_t>() == 1);
}

TEST_CASE("a module can be used inside and outside a checkpointed part") {
  Scale part;
  const auto x = torch::ones({2});
  checkpoint_activations(part, part(x)).sum().backward();
  CHECK(part->weight.grad().equal(torch::full({2}, 18.0)));
}

TEST_CASE("an input tensor of a checkpointed part may be undefined") {
  Scale part;
  const auto x = torch::ones({2}).set_requires_grad(true);
  checkpoint_activations(part, x, at::Tensor()).sum().backward();
  CHECK(x.grad().equal(torch::full({2}, 3.0)));
}

TEST_CASE("second derivatives of a checkpointed part are rejected") {
  Scale part;
  const auto x = torch::ones({2}).set_requires_grad(true);
  const auto result = checkpoint_activations(part, x).sum();
  CHECK_THROWS_AS(torch::autograd::grad({result}, {x}, {}, true, /*create_graph=*/true), adaptdl::UsageError);
}

}  // namespace activation_checkpoint_test
