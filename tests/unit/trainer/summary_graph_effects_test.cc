// Tests that writing the graph of a model affects neither training nor the model and its inputs, and on which replicas
// and in which runs of a job it is written.
#include <fmt/format.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>

#include "adaptdl/checkpoint.h"
#include "adaptdl/torch/amp.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "adaptdl/torch/scaling_rules.h"
#include "adaptdl/torch/summary_writer.h"
#include "adaptdl/torch/sync_batch_norm.h"
#include "elastic_job.h"
#include "event_records.h"
#include "replica_processes.h"
#include "step_loops.h"
#include "summary_graph_support.h"
#include "temporary_directory.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace summary_graph_effects_test {

namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;
using adaptdl::SummaryWriter;
using summary_graph_support::find;
using summary_graph_support::graph_of;
using summary_graph_support::graphs_in;
using summary_graph_support::module_of;
using summary_graph_support::names_of;
using summary_graph_support::user_of;
using testing::Shapes;
using testing::TemporaryDirectory;

// A module whose forward pass changes a buffer, its input and the random number generator.
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

TEST_CASE("add_graph leaves modes, buffers, gradients, inputs and the random number generator unchanged") {
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

TEST_CASE("add_graph restores buffers that change in size, or that change without getting a new version number") {
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

}  // namespace summary_graph_effects_test
