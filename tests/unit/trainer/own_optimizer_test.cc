// Tests custom optimizers, which save their own state.
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/error.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "error_of.h"
#include "replica_processes.h"
#include "step_loops.h"
#include "temporary_directory.h"

#include <doctest/doctest.h>

namespace own_optimizer_test {

namespace {

namespace optim = torch::optim;
using adaptdl::Adaptive;
using adaptdl::AdaptiveDataParallel;
using ::testing::error_of;
using testing::expect_replicas;
using testing::flat;
using testing::inputs;
using ::testing::says;
using testing::small_model;

// Lion: Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023.
class Lion : public optim::Optimizer {
 public:
  Lion(std::vector<at::Tensor> params, double lr)
      : Optimizer({optim::OptimizerParamGroup(std::move(params))}, std::make_unique<optim::SGDOptions>(lr)) {}

  at::Tensor step(LossClosure = nullptr) override {
    torch::NoGradGuard no_grad;
    auto& params = param_groups()[0].params();
    for (std::size_t i = 0; i < params.size(); ++i) {
      if (!params[i].grad().defined()) continue;
      if (momenta.size() <= i) momenta.push_back(torch::zeros_like(params[i]));
      params[i].sub_((0.9 * momenta[i] + 0.1 * params[i].grad()).sign(), param_groups()[0].options().get_lr());
      momenta[i] = 0.99 * momenta[i] + 0.01 * params[i].grad();
    }
    return {};
  }
  void save(torch::serialize::OutputArchive& archive) const override {
    archive.write("lr", param_groups()[0].options().get_lr());
    for (std::size_t i = 0; i < momenta.size(); ++i) archive.write("momentum" + std::to_string(i), momenta[i], true);
  }
  void load(torch::serialize::InputArchive& archive) override {
    c10::IValue lr;
    archive.read("lr", lr);
    param_groups()[0].options().set_lr(lr.toDouble());
    at::Tensor momentum;
    momenta.clear();
    while (archive.try_read("momentum" + std::to_string(momenta.size()), momentum, true))
      momenta.push_back(momentum.clone());
  }
  std::vector<at::Tensor> momenta;
};

struct Forgetful : Lion {
  using Lion::Lion;
  void save(torch::serialize::OutputArchive&) const override {}
};

// An optimizer with more state than the one that it is derived from.
template <class Base>
struct Counting : Base {
  using Base::Base;
  at::Tensor step(optim::Optimizer::LossClosure closure = nullptr) override {
    for (auto& group : this->param_groups()) group.options().set_lr(1.0 / static_cast<double>(10 + steps));
    ++steps;
    return Base::step(std::move(closure));
  }
  void save(torch::serialize::OutputArchive& archive) const override {
    Base::save(archive);
    archive.write("steps", steps);
  }
  void load(torch::serialize::InputArchive& archive) override {
    Base::load(archive);
    c10::IValue value;
    archive.read("steps", value);
    steps = value.toInt();
  }
  std::int64_t steps = 0;
};
using CountingSgd = Counting<optim::SGD>;
using CountingAdaptive = Counting<Adaptive<optim::SGD>>;

// Trains steps [from, to) on two replicas. Returns the parameters as saved.
template <class Make>
std::string train(const Make& make, int from, int to, bool save, const std::filesystem::path& path) {
  expect_replicas(2, [&](int rank) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    auto optimizer = make(net->parameters());
    AdaptiveDataParallel model(net, *optimizer);
    for (int step = from; step < to; ++step) {
      optimizer->zero_grad();
      model(inputs(rank, step)).square().mean().backward();
      optimizer->step();
    }
    if (save) adaptdl::checkpoint::save_all_states();
    if (rank == 0) torch::save(flat(*net), path.string());
    adaptdl::destroy_process_group();
  });
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class Make>
void resumes_bit_for_bit(const Make& make) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "parameters.pt";
  const auto whole = train(make, 0, 5, false, path);
  setenv("ADAPTDL_CHECKPOINT_PATH", (directory.path() / "checkpoints").c_str(), 1);
  train(make, 0, 3, true, path);
  const auto resumed = train(make, 3, 5, false, path);
  unsetenv("ADAPTDL_CHECKPOINT_PATH");
  CHECK(resumed == whole);
}

}  // namespace

TEST_CASE("a custom optimizer resumes bit for bit with its own save() and load()" * doctest::test_suite("slow")) {
  using Params = std::vector<at::Tensor>;
  resumes_bit_for_bit([](const Params& params) { return std::make_unique<Lion>(params, 0.01); });
  resumes_bit_for_bit([](const Params& params) { return std::make_unique<Adaptive<Lion>>(params, 0.01); });
  resumes_bit_for_bit(
      [](const Params& params) { return std::make_unique<CountingSgd>(params, optim::SGDOptions(0.1).momentum(0.9)); });
  resumes_bit_for_bit([](const Params& params) {
    return std::make_unique<CountingAdaptive>(params, optim::SGDOptions(0.1).momentum(0.9));
  });
}

TEST_CASE("an optimizer that saves nothing and a checkpoint of another optimizer are rejected") {
  const testing::TemporaryDirectory directory;
  setenv("ADAPTDL_CHECKPOINT_PATH", directory.path().c_str(), 1);
  expect_replicas(1, [](int) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    Forgetful forgetful(net->parameters(), 0.1);
    EXPECT(says(error_of<adaptdl::UsageError>([&] { AdaptiveDataParallel model(net, forgetful); }),
                "Forgetful saves nothing, so it would lose its state at a restart"));
    Lion lion(net->parameters(), 0.1);
    AdaptiveDataParallel model(net, lion);
    adaptdl::checkpoint::save_all_states();
  });
  expect_replicas(1, [](int) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    CountingSgd sgd(net->parameters(), optim::SGDOptions(0.1));
    const auto error = error_of<adaptdl::checkpoint::CheckpointError>([&] { AdaptiveDataParallel model(net, sgd); });
    EXPECT(says(error, "Lion in the checkpoint, ") && says(error, "Counting<torch::optim::SGD> in this program"));
  });
  unsetenv("ADAPTDL_CHECKPOINT_PATH");
}

}  // namespace own_optimizer_test
