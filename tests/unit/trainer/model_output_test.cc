// Tests models whose forward pass returns any type, and TorchScript modules.
#include <torch/script.h>
#include <torch/torch.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/error.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "adaptdl/torch/script_module.h"
#include "error_of.h"
#include "replica_processes.h"
#include "temporary_directory.h"

#include <doctest/doctest.h>

namespace model_output_test {

namespace nn = torch::nn;
using adaptdl::AdaptiveDataParallel;
using adaptdl::DataParallelOptions;
using ::testing::error_of;
using testing::expect_replicas;
using ::testing::says;

struct Opaque {
  at::Tensor value;
};
struct Known {
  at::Tensor value;
  int number;
};
std::vector<at::Tensor> tensors_of(const Known& known) { return {known.value}; }

namespace {

using Mixed = std::tuple<std::map<std::string, at::Tensor>, std::optional<at::Tensor>, int, std::string,
                         std::vector<std::pair<Known, double>>>;

// Returns its result in an output of type `Output`. `second` is unused.
template <class Output>
struct WithOutput : nn::Module {
  explicit WithOutput(std::function<Output(at::Tensor)> wrap_) : wrap(std::move(wrap_)) {
    register_module("first", first), register_module("second", second);
  }
  Output forward(const at::Tensor& x) { return wrap(first(x)); }
  nn::Linear first{4, 2}, second{4, 2};
  std::function<Output(at::Tensor)> wrap;
};

// Trains two steps and returns the error. With `find`, there are unused parameters, which only the output reveals.
template <class Output>
std::string error_with(std::function<Output(at::Tensor)> wrap, std::function<at::Tensor(const Output&)> unwrap,
                       bool find) {
  return error_of<adaptdl::UsageError>([&] {
    auto net = std::make_shared<WithOutput<Output>>(wrap);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    AdaptiveDataParallel model(net, optimizer, DataParallelOptions{.name = "model", .find_unused_parameters = find});
    for (int step = 0; step < 2; ++step) {
      auto loss = unwrap(model(torch::ones({3, 4}))).sum();
      if (!find) loss = loss + 0 * net->second->weight.sum() + 0 * net->second->bias.sum();
      loss.backward();
      optimizer.step();
    }
  });
}

}  // namespace

TEST_CASE("tensors are found in containers, tuples, optionals, IValues and types with tensors_of()") {
  expect_replicas(2, [](int) {
    adaptdl::init_process_group("gloo");
    const auto wrap = [](const at::Tensor& x) { return Mixed{{{"a", x}}, std::nullopt, 1, "text", {}}; };
    EXPECT(error_with<Mixed>(
               wrap, [](const Mixed& mixed) { return std::get<0>(mixed).at("a"); }, true) == "");
    const auto wrap_optional = [](const at::Tensor& x) { return Mixed{{}, x, 1, "text", {}}; };
    EXPECT(error_with<Mixed>(
               wrap_optional, [](const Mixed& mixed) { return *std::get<1>(mixed); }, true) == "");
    const auto wrap_known = [](const at::Tensor& x) { return Mixed{{}, {}, 1, "text", {{Known{x, 2}, 0.5}}}; };
    EXPECT(error_with<Mixed>(
               wrap_known, [](const Mixed& mixed) { return std::get<4>(mixed)[0].first.value; }, true) == "");
    const auto wrap_value = [](const at::Tensor& x) {
      c10::Dict<std::string, at::Tensor> dict;
      dict.insert("a", x);
      return c10::IValue(std::make_tuple(std::vector<at::Tensor>{torch::ones(1)}, dict));
    };
    const auto unwrap_value = [](const c10::IValue& value) {
      return value.toTupleRef().elements()[1].toGenericDict().at("a").toTensor();
    };
    EXPECT(error_with<c10::IValue>(wrap_value, unwrap_value, true) == "");
    adaptdl::destroy_process_group();
  });
}

TEST_CASE("other output types need tensors_of() only to find unused parameters") {
  expect_replicas(1, [](int) {
    adaptdl::init_process_group("gloo");
    const auto wrap = [](const at::Tensor& x) { return Opaque{x}; };
    const auto unwrap = [](const Opaque& opaque) { return opaque.value; };
    EXPECT(error_with<Opaque>(wrap, unwrap, false) == "");
    EXPECT(says(error_with<Opaque>(wrap, unwrap, true), "define std::vector<at::Tensor> tensors_of(const Output&)"));
  });
}

TEST_CASE("a TorchScript module can be trained, resumed from a checkpoint and saved") {
  const testing::TemporaryDirectory directory;
  const auto path = (directory.path() / "trained.pt").string();
  setenv("ADAPTDL_CHECKPOINT_PATH", (directory.path() / "checkpoints").c_str(), 1);
  const auto scripted = [] {
    torch::jit::Module script("Net"), layer("Layer");
    torch::manual_seed(4);
    layer.register_parameter("weight", torch::randn({2, 4}).requires_grad_(), /*is_buffer=*/false);
    layer.register_parameter("frozen", torch::ones({2}).requires_grad_(false), /*is_buffer=*/false);
    layer.register_buffer("scale", torch::full({1}, 2.0));
    layer.define("def forward(self, x):\n  return (self.scale * x @ self.weight.t() + self.frozen, 1)\n");
    script.register_module("layer", layer);
    script.register_attribute("training", c10::BoolType::get(), true);  // as in an export from Python
    script.define("def forward(self, x):\n  y, n = self.layer.forward(x)\n  return y if self.training else y * 0\n");
    return script;
  };
  for (const int run : {0, 1}) {
    expect_replicas(2, [&](int rank) {
      adaptdl::init_process_group("gloo");
      adaptdl::ScriptModule net(scripted());
      auto weight = scripted().attr("layer").toModule().attr("weight").toTensor();
      EXPECT(net->named_parameters()["layer.weight"].equal(weight) && net->named_buffers().contains("layer.scale"));
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      AdaptiveDataParallel model(net, optimizer);
      const auto input = torch::full({3, 4}, 1.0 + rank);
      optimizer.zero_grad();
      model(input).toTensor().sum().backward();
      optimizer.step();
      // Each weight changes by 0.1 times its mean gradient, which is twice the mean of 3 and 6.
      EXPECT(torch::allclose(net->named_parameters()["layer.weight"], weight - 0.9 * (run + 1), 1e-5, 1e-5));
      EXPECT(net->named_parameters()["layer.frozen"].equal(torch::ones({2})));
      net->eval();
      EXPECT(net->forward(input).toTensor().abs().sum().item<double>() == 0);
      net->train();
      if (rank == 0) net->script().save(path);
      adaptdl::checkpoint::save_all_states();
      const auto loaded = torch::jit::load(path).attr("layer").toModule().attr("weight").toTensor();
      EXPECT(rank == 1 || torch::allclose(loaded, weight - 0.9 * (run + 1), 1e-5, 1e-5));
      adaptdl::destroy_process_group();
    });
  }
  unsetenv("ADAPTDL_CHECKPOINT_PATH");
}

}  // namespace model_output_test
