// Measures what a data-parallel step costs relative to a bare c10d::Reducer loop with the same model, in interleaved
// pairs of steps on two local replicas. Prints the ratio of the median times; exits with 1 if the ratio exceeds 1.02.
#include <fmt/format.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "group/process_group.h"

namespace {

namespace nn = torch::nn;
namespace compat = adaptdl::compat;
using Clock = std::chrono::steady_clock;

constexpr int kReplicas = 2, kWarmUp = 20, kPairs = 400;

nn::Sequential make_model() {
  torch::manual_seed(1);
  return nn::Sequential(nn::Linear(256, 1024), nn::ReLU(), nn::Linear(1024, 512), nn::ReLU(), nn::Linear(512, 10));
}

// The loop that a program without AdaptiveDataParallel would contain.
struct Bare {
  explicit Bare(nn::Sequential model) : net(model), params(net->parameters()) {
    const auto group = adaptdl::internal::process_group_ptr();
    const compat::ReducerOptions options{1 << 20, 25 << 20, false, false};
    std::unordered_map<std::size_t, std::string> names;
    for (std::size_t i = 0; i < params.size(); ++i) names[i] = std::to_string(i);
    reducer = compat::make_reducer(params, compat::initial_buckets(params, options), group, options, names).reducer;
  }
  at::Tensor operator()(const at::Tensor& x) {
    reducer->prepare_for_forward();
    if (reducer->should_rebuild_buckets()) reducer->rebuild_buckets();
    auto result = net->forward(x);
    reducer->prepare_for_backward({});
    return result;
  }
  nn::Sequential net;
  std::vector<at::Tensor> params;
  std::shared_ptr<c10d::Reducer> reducer;
};

template <class Model>
double seconds_of_step(Model& model, torch::optim::Optimizer& optimizer, const at::Tensor& x) {
  const auto start = Clock::now();
  optimizer.zero_grad();
  model(x).square().mean().backward();
  optimizer.step();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

int run(int rank) {
  adaptdl::init_process_group("gloo");
  auto net = make_model(), bare_net = make_model();
  torch::optim::SGD optimizer(net->parameters(), 1e-6), bare_optimizer(bare_net->parameters(), 1e-6);
  adaptdl::AdaptiveDataParallel model(net, optimizer);
  Bare bare(bare_net);
  const auto x = torch::randn({64, 256});
  std::vector<double> ours, theirs;
  for (int pair = -kWarmUp; pair < kPairs; ++pair) {
    // The two models take turns going first.
    double bare_seconds = pair % 2 == 0 ? seconds_of_step(bare, bare_optimizer, x) : 0;
    const double seconds = seconds_of_step(model, optimizer, x);
    if (pair % 2 != 0) bare_seconds = seconds_of_step(bare, bare_optimizer, x);
    if (pair < 0) continue;
    ours.push_back(seconds);
    theirs.push_back(bare_seconds);
  }
  const double ratio = median(ours) / median(theirs);
  if (rank == 0) {
    fmt::print(
        "data-parallel step / bare Reducer step: {:.4f} ({:.3f} ms / {:.3f} ms, medians of {} interleaved pairs)\n",
        ratio, 1e3 * median(ours), 1e3 * median(theirs), kPairs);
  }
  adaptdl::destroy_process_group();
  return rank == 0 && ratio > 1.02 ? 1 : 0;
}

}  // namespace

int main() {
  setenv("ADAPTDL_NUM_REPLICAS", std::to_string(kReplicas).c_str(), 1);
  setenv("ADAPTDL_MASTER_ADDR", "127.0.0.1", 1);
  setenv("ADAPTDL_MASTER_PORT", std::to_string(20000 + getpid() % 10000).c_str(), 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  const pid_t child = fork();
  setenv("ADAPTDL_REPLICA_RANK", child == 0 ? "1" : "0", 1);
  const int code = run(child == 0 ? 1 : 0);
  if (child == 0) std::_Exit(code);
  int status = 0;
  waitpid(child, &status, 0);
  return code != 0 || status != 0 ? 1 : 0;
}
