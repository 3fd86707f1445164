// Tests graphs of models as readers see them. The real TensorBoard reads one in tests/e2e/tensorboard_test.py.
#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/torch/script_module.h"
#include "adaptdl/torch/summary_writer.h"
#include "event_records.h"
#include "summary_graph_support.h"
#include "temporary_directory.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace summary_graph_test {

namespace {

namespace nn = torch::nn;
using adaptdl::SummaryWriter;
using summary_graph_support::find;
using summary_graph_support::graph_of;
using summary_graph_support::graphs_in;
using summary_graph_support::module_of;
using summary_graph_support::names_of;
using summary_graph_support::user_of;
using summary_graph_support::uses;
using testing::Node;
using testing::Shapes;
using testing::TemporaryDirectory;

struct Block : nn::Module {
  Block() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x) { return last(torch::relu(norm(conv(x)))); }
  nn::Conv2d conv{nn::Conv2dOptions(1, 2, 3).padding(1)};
  nn::BatchNorm2d norm{2};
  nn::Conv2d last{nn::Conv2dOptions(2, 2, 1).bias(false)};
};

struct Net : nn::Module {
  Net() {
    register_module("block", block);
    register_module("head", head);
    register_module("unused", nn::Linear(2, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return head(block->forward(x).flatten(1)); }
  std::shared_ptr<Block> block = std::make_shared<Block>();
  nn::Linear head{32, 3};
};

torch::jit::Module script() {
  torch::jit::Module module("Script"), layer("Layer");
  layer.register_parameter("weight", torch::ones({2, 4}), /*is_buffer=*/false);
  layer.register_attribute("training", c10::BoolType::get(), true);
  layer.define("def forward(self, x):\n  return x @ self.weight.t() if self.training else x @ self.weight.t() + 1\n");
  module.register_module("layer", layer);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define("def forward(self, x):\n  return self.layer.forward(x).relu()\n");
  return module;
}

}  // namespace

TEST_CASE("a graph contains inputs, parameters and operators by module, with shapes, arguments and edges") {
  auto net = std::make_shared<Net>();
  const auto nodes = graph_of(net, torch::ones({2, 1, 4, 4}));
  CHECK(find(nodes, "input").op == "Input");
  CHECK(find(nodes, "input").output_shapes == Shapes{{2, 1, 4, 4}});
  CHECK(find(nodes, "block/conv/weight").op == "Parameter");
  CHECK(find(nodes, "block/conv/weight").output_shapes == Shapes{{2, 1, 3, 3}});
  CHECK(find(nodes, "block/norm/running_mean").op == "Buffer");
  const auto& conv = user_of(nodes, "input");
  CHECK(module_of(conv) == "block/conv");
  CHECK((conv.op.starts_with("aten::") && conv.op.find("conv") != std::string::npos));
  CHECK((uses(conv, "block/conv/weight") && uses(conv, "block/conv/bias")));
  CHECK(conv.attributes.at("padding") == "[1, 1]");
  CHECK(user_of(nodes, conv.name).attributes.at("momentum") == "0.1");
  CHECK(conv.output_shapes == Shapes{{2, 2, 4, 4}});
  const auto& norm = user_of(nodes, conv.name);
  CHECK(module_of(norm) == "block/norm");
  // The activation has no parameters, and runs between modules of the block.
  const auto& relu = user_of(nodes, norm.name);
  CHECK((relu.name == "block/relu" && relu.op == "aten::relu"));
  const auto& last = user_of(nodes, relu.name);
  CHECK(module_of(last) == "block/last");
  CHECK(user_of(nodes, last.name).name == "flatten");
  const auto& output = find(nodes, "output");
  CHECK(output.op == "Output");
  REQUIRE(output.inputs.size() == 1);
  CHECK(module_of(find(nodes, output.inputs[0])) == "head");
  CHECK(output.output_shapes == Shapes{{2, 3}});
  auto names = names_of(nodes);
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  for (const auto& name : names) CHECK_FALSE(name.starts_with("unused"));
  for (const auto& node : nodes) {
    for (const auto& input : node.inputs) find(nodes, input.substr(0, input.find(':')));
  }
}

TEST_CASE("a graph supports several inputs and outputs, lists of tensors, and operators with several outputs") {
  struct Several : nn::Module {
    std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& a, const std::vector<at::Tensor>& list,
                                                            double factor, const at::Tensor& none) {
      CHECK_FALSE(none.defined());
      const auto parts = torch::cat({a, list[0], list[1]}).chunk(2);
      return {parts[1] * factor, {parts[0], std::get<1>(a.max(0))}};
    }
  };
  auto net = std::make_shared<Several>();
  const auto ones = torch::ones({2});
  const auto nodes = graph_of(net, ones, std::vector<at::Tensor>{ones, torch::ones({4})}, 0.5, at::Tensor());
  CHECK(find(nodes, "cat").inputs == std::vector<std::string>{"input_0", "input_1", "input_2"});
  CHECK(find(nodes, "input_2").output_shapes == Shapes{{4}});
  CHECK(find(nodes, "chunk").output_shapes == Shapes{{4}, {4}});
  CHECK(find(nodes, "chunk").attributes.at("chunks") == "2");
  CHECK(find(nodes, "mul").inputs == std::vector<std::string>{"chunk:1"});
  CHECK(find(nodes, "mul").attributes.at("other") == "0.5");
  CHECK(find(nodes, "output").inputs == std::vector<std::string>{"mul"});
  CHECK(find(nodes, "output_1").inputs == std::vector<std::string>{"chunk"});
  CHECK(find(nodes, "output_2").inputs == std::vector<std::string>{"max:1"});
  CHECK(find(nodes, "max").output_shapes == Shapes{{}, {}});
}

TEST_CASE("an operator with many parameters is one node, and a shared parameter appears once") {
  nn::LSTM lstm(3, 5);
  const auto recurrent = graph_of(lstm, torch::ones({7, 2, 3}));
  const auto& cell = user_of(recurrent, "weight_ih_l0");
  CHECK((uses(cell, "bias_hh_l0") && uses(cell, "input")));
  struct Tied : nn::Module {
    Tied() {
      register_module("embedding", embedding);
      weight = register_parameter("weight", embedding->weight);
    }
    at::Tensor forward(const at::Tensor& x) { return torch::matmul(embedding(x), weight.t()); }
    nn::Embedding embedding{6, 4};
    at::Tensor weight;
  };
  auto tied = std::make_shared<Tied>();
  const auto nodes = graph_of(tied, torch::tensor({1, 2}));
  const auto parameters = std::count_if(nodes.begin(), nodes.end(), [](const Node& n) { return n.op == "Parameter"; });
  CHECK(parameters == 1);
  CHECK(find(nodes, "output").output_shapes == Shapes{{2, 6}});
}

TEST_CASE("operators with the same name are numbered") {
  struct Unrolled : nn::Module {
    at::Tensor forward(at::Tensor x) {
      for (int i = 0; i < 3; ++i) x = torch::relu(x);
      return x;
    }
  };
  auto net = std::make_shared<Unrolled>();
  const auto names = names_of(graph_of(net, torch::ones({2})));
  for (const auto* const name : {"relu", "relu_1", "relu_2"}) CHECK(std::ranges::count(names, name) == 1);
}

TEST_CASE("a TorchScript module's graph is grouped by submodule, and modes are unchanged") {
  adaptdl::ScriptModule net(script());
  auto layer = net->script().attr("layer").toModule();
  layer.eval();
  const auto nodes = graph_of(net, torch::ones({3, 4}));
  CHECK(find(nodes, "layer/weight").op == "Parameter");
  CHECK(module_of(user_of(nodes, "layer/weight")) == "layer");
  const auto is_relu = [](const Node& node) { return node.op == "aten::relu"; };
  CHECK(std::any_of(nodes.begin(), nodes.end(), is_relu));
  CHECK(find(nodes, "output").output_shapes == Shapes{{3, 2}});
  CHECK((net->is_training() && net->script().is_training() && !layer.is_training()));
}

TEST_CASE("a model that cannot be traced is rejected with the reason and not logged") {
  const TemporaryDirectory directory;
  SummaryWriter writer(directory.path());
  nn::Linear net(4, 2);
  CHECK_THROWS_WITH_AS(writer.add_graph(net, torch::ones({3, 5})),
                       doctest::Contains("mat1 and mat2 shapes cannot be multiplied (3x5 and 4x2)"),
                       adaptdl::UsageError);
  CHECK(net->is_training());
  struct Unregistered : nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x * weight; }
    at::Tensor weight = torch::ones({4}).requires_grad_();
  };
  auto unregistered = std::make_shared<Unregistered>();
  CHECK_THROWS_WITH_AS(
      writer.add_graph(unregistered, torch::ones({4})),
      doctest::Contains("cannot trace the model for its graph: Cannot insert a Tensor that requires grad "
                        "as a constant. Consider making it a parameter"),
      adaptdl::UsageError);
  writer.flush();
  CHECK(graphs_in(directory.path()).empty());
}

}  // namespace summary_graph_test
