// Tests graphs of models as readers see them. The real TensorBoard reads one in tests/e2e/tensorboard_test.py.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/error.h"
#include "adaptdl/torch/amp.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "adaptdl/torch/scaling_rules.h"
#include "adaptdl/torch/script_module.h"
#include "adaptdl/torch/summary_writer.h"
#include "adaptdl/torch/sync_batch_norm.h"
#include "elastic_job.h"
#include "event_records.h"
#include "step_loops.h"
#include "temporary_directory.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace summary_graph_test {

namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;
using adaptdl::SummaryWriter;
using testing::Node;
using testing::Shapes;
using testing::TemporaryDirectory;

using Nodes = std::vector<Node>;

// Returns the graphs in the directory's only file.
std::vector<Nodes> graphs_in(const fs::path& directory) {
  const auto files = testing::files_in(directory);
  REQUIRE(files.size() == 1);
  std::vector<Nodes> graphs;
  for (const auto& event : testing::events_of(files[0])) {
    if (!event.graph.empty()) graphs.push_back(event.graph);
  }
  return graphs;
}

template <class Model, class... Inputs>
Nodes graph_of(Model& model, const Inputs&... inputs) {
  const TemporaryDirectory directory;
  {
    SummaryWriter writer(directory.path());
    writer.add_graph(model, inputs...);
  }
  const auto graphs = graphs_in(directory.path());
  REQUIRE(graphs.size() == 1);
  return graphs[0];
}

std::vector<std::string> names_of(const Nodes& nodes) {
  std::vector<std::string> names;
  for (const auto& node : nodes) names.push_back(node.name);
  return names;
}

const Node& find(const Nodes& nodes, const std::string& name) {
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) { return node.name == name; });
  if (found == nodes.end())
    throw std::runtime_error(fmt::format("{} is not in {}", name, fmt::join(names_of(nodes), " ")));
  return *found;
}

bool uses(const Node& node, const std::string& input) {
  return std::find(node.inputs.begin(), node.inputs.end(), input) != node.inputs.end();
}

// Returns the only operator that uses the output of a node.
const Node& user_of(const Nodes& nodes, const std::string& name) {
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) { return uses(node, name); });
  if (found == nodes.end()) throw std::runtime_error(name + " is not used");
  return *found;
}

std::string module_of(const Node& node) { return node.name.substr(0, node.name.rfind('/')); }

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

// A module whose forward pass changes a buffer, its input and the random generator.
struct Changing : nn::Module {
  explicit Changing(bool fails_ = false) : fails(fails_) {
    calls = register_buffer("calls", torch::zeros({1}));
    register_module("dropout", dropout);
    weight = register_parameter("weight", torch::ones({4}));
  }
  at::Tensor forward(at::Tensor x) {
    ++passes;
    seen_training = is_training() || dropout->is_training();
    calls += 1;
    x.mul_(2);
    const auto noise = torch::rand({4});
    if (fails) throw std::logic_error("it fails");
    return dropout(x + noise) * weight;
  }
  const bool fails;
  int passes = 0;
  bool seen_training = false;
  at::Tensor calls, weight;
  nn::Dropout dropout{0.5};
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

// Trains four steps, and notes the results.
void train(const testing::ElasticJob& job, int rank, bool graph) {
  job.prepare();
  adaptdl::init_process_group("gloo");
  torch::manual_seed(3);
  nn::Sequential net(nn::Linear(4, 8), adaptdl::SyncBatchNorm(8), nn::Dropout(0.5), nn::Linear(8, 2));
  adaptdl::Adaptive<torch::optim::SGD> optimizer(net->parameters(), 0.1);
  adaptdl::AdaptiveDataParallel model(net, optimizer);
  SummaryWriter writer(job.path() / "events");
  testing::loop(2, 0, 4, [&](int batch) {
    const auto input = testing::inputs(rank, batch);
    if (graph && batch == 2) writer.add_graph(model, input);
    const auto loss = model(input).square().mean();
    optimizer.zero_grad();
    loss.backward();
    if (graph && batch == 3) writer.add_graph(model, input);
    optimizer.step();
  });
  double sum = 0;
  for (const auto& buffer : net->buffers()) sum += buffer.sum().item<double>();
  if (rank == 0)
    job.note(fmt::format("{:a} {:a} {:a} {:a}", testing::flat(*net).to(torch::kDouble).square().sum().item<double>(),
                         sum, model.gns().sqr_avg(), model.gns().var_avg()));
  adaptdl::destroy_process_group();
}

}  // namespace

// Tests that fork must come first, because LibTorch's threads do not survive a fork.

TEST_CASE("add_graph affects neither training nor the noise scale, and does not communicate") {
  const testing::ElasticJob with, without;
  testing::expect_replicas(2, [&](int rank) { train(with, rank, true); });
  testing::expect_replicas(2, [&](int rank) { train(without, rank, false); });
  CHECK(with.notes().size() == 1);
  CHECK(with.notes() == without.notes());
  const auto graphs = graphs_in(with.path() / "events");
  REQUIRE(graphs.size() == 2);
  CHECK(names_of(graphs[0]) == names_of(graphs[1]));
  CHECK(module_of(user_of(graphs[0], "1/running_mean")) == "1");
}

TEST_CASE("replicas other than rank 0 skip the forward pass of add_graph unless they write") {
  const testing::ElasticJob job;
  job.run_to(0, 2, [&](int rank) {
    auto net = std::make_shared<Changing>();
    SummaryWriter writer(job.path() / ("rank" + std::to_string(rank)));
    writer.add_graph(net, torch::ones({4}));
    EXPECT(net->passes == (rank == 0 ? 1 : 0));
    SummaryWriter all(job.path() / ("all" + std::to_string(rank)), {.all_ranks = true});
    all.add_graph(net, torch::ones({4}));
  });
  CHECK_FALSE(fs::exists(job.path() / "rank1"));
  for (const char* writer : {"rank0", "all0", "all1"}) CHECK(graphs_in(job.path() / writer).size() == 1);
}

TEST_CASE("a resumed job does not write the graph again") {
  const testing::ElasticJob job;
  const auto program = [&](int) {
    nn::Linear net(4, 2);
    SummaryWriter writer(job.path() / "events");
    writer.add_graph(net, torch::ones({1, 4}));
    adaptdl::checkpoint::save_all_states();
  };
  job.run_to(0, 1, program);
  job.run_to(0, 1, program);
  const auto files = testing::files_in(job.path() / "events");
  REQUIRE(files.size() == 2);
  const auto has_graph = [](const auto& event) { return !event.graph.empty(); };
  const auto first = testing::events_of(files[0]), second = testing::events_of(files[1]);
  CHECK(std::count_if(first.begin(), first.end(), has_graph) == 1);
  CHECK(std::count_if(second.begin(), second.end(), has_graph) == 0);
}

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

TEST_CASE("add_graph leaves modes, buffers, gradients, inputs and the random generator unchanged") {
  const TemporaryDirectory directory;
  SummaryWriter writer(directory.path());
  for (const bool fails : {false, true}) {
    auto net = std::make_shared<Changing>(fails);
    net->dropout->eval();
    const auto input = torch::ones({4}).requires_grad_();
    torch::manual_seed(5);
    const auto expected = torch::rand({3});
    torch::manual_seed(5);
    if (fails) {
      CHECK_THROWS_WITH_AS(writer.add_graph(net, input), "it fails", std::logic_error);
    } else {
      writer.add_graph(net, input);
    }
    CHECK(torch::rand({3}).equal(expected));
    CHECK_FALSE(net->seen_training);
    CHECK((net->is_training() && !net->dropout->is_training()));
    CHECK(net->calls.item<float>() == 0);
    CHECK(input.equal(torch::ones({4})));
    CHECK((input.requires_grad() && !input.grad().defined()));
    CHECK((net->weight.requires_grad() && !net->weight.grad().defined()));
    CHECK(torch::GradMode::is_enabled());
    CHECK_FALSE(torch::jit::tracer::isTracing());
  }
  writer.flush();
  CHECK(graphs_in(directory.path()).size() == 1);
}

namespace {

// A module whose buffers change in size, or without a new version number.
struct Remembering : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const auto seen = cache.size(0);
    cache.resize_({seen + x.size(0), x.size(1)});
    cache.slice(0, seen).copy_(x);
    return torch::batch_norm(x, {}, {}, mean, variance, /*training=*/true, 0.1, 1e-5, false);
  }
  at::Tensor cache = register_buffer("cache", torch::zeros({1, 4}));
  at::Tensor mean = register_buffer("mean", torch::zeros({4}));
  at::Tensor variance = register_buffer("variance", torch::ones({4}));
};

struct Recurrent : nn::Module {
  at::Tensor forward(const at::Tensor& x, const std::tuple<at::Tensor, at::Tensor>& state) {
    std::get<0>(state).add_(1);
    return std::get<0>(lstm(x, state));
  }
  nn::LSTM lstm = register_module("lstm", nn::LSTM(4, 4));
};

}  // namespace

TEST_CASE("add_graph restores buffers that change in size or without a new version number") {
  auto net = std::make_shared<Remembering>();
  graph_of(net, torch::ones({3, 4}));
  CHECK(net->cache.equal(torch::zeros({1, 4})));
  CHECK(net->mean.equal(torch::zeros({4})));
  CHECK(net->variance.equal(torch::ones({4})));
}

TEST_CASE("tensors in a tuple are graph inputs and stay unchanged") {
  auto net = std::make_shared<Recurrent>();
  const auto hidden = torch::zeros({1, 2, 4}).requires_grad_() * 1;
  const auto nodes = graph_of(net, torch::ones({3, 2, 4}), std::make_tuple(hidden, torch::zeros({1, 2, 4})));
  for (const auto* const name : {"input_0", "input_1", "input_2"}) CHECK(find(nodes, name).op == "Input");
  CHECK(hidden.equal(torch::zeros({1, 2, 4})));
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

TEST_CASE("add_graph under autocast does not break later gradients") {
  nn::Linear net(4, 2);
  at::Tensor loss;
  {
    const adaptdl::Autocast autocast(at::kCPU);
    const auto nodes = graph_of(net, torch::ones({3, 4}));
    CHECK(find(nodes, "output").output_shapes == Shapes{{3, 2}});
    loss = net(torch::ones({3, 4})).sum();
  }
  loss.backward();
  CHECK((net->weight.grad().defined() && net->bias.grad().defined()));
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
