// Tests parts of the trainer on a GPU: default devices, noise estimates, step times, batches and tensors. One GPU
// suffices: NCCL allows one replica per GPU, so replicas that share it use Gloo.
#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "adaptdl/torch/accumulator.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "adaptdl/torch/scaling_rules.h"
#include "adaptdl/torch/summary_writer.h"
#include "adaptdl/torch/sync_batch_norm.h"
#include "elastic_job.h"
#include "gpu_support.h"
#include "numbers.h"
#include "replica_processes.h"
#include "scaling/squared_norm.h"
#include "support/device_time.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace gpu_test {

namespace {

namespace nn = torch::nn;
using adaptdl::AdaptiveDataParallel;
using adaptdl::remaining_epochs_until;
using gpu_support::kCpu;
using gpu_support::kFeatures;
using gpu_support::kGpu;
using gpu_support::regression;
using gpu_support::small_net;
using testing::ElasticJob;
using testing::expect_replicas;
using testing::Numbers;
using Loader = adaptdl::AdaptiveDataLoader<Numbers>;
using SGD = adaptdl::Adaptive<torch::optim::SGD>;
using Adam = adaptdl::Adaptive<torch::optim::Adam>;

}  // namespace

TEST_CASE("a replica uses the GPU and the NCCL backend by default") {
  expect_replicas(1, [](int) {
    EXPECT(adaptdl::replica_device() == kGpu);
    adaptdl::init_process_group();
    EXPECT(adaptdl::process_group().getBackendName() == "nccl");
    std::vector<at::Tensor> tensors = {torch::full({5}, 3.0, kGpu)};
    adaptdl::process_group().allreduce(tensors)->wait();
    EXPECT(tensors[0].equal(torch::full({5}, 3.0, kGpu)));
    adaptdl::destroy_process_group();
  });
}

// Returns the averages of the noise scale after two epochs, one step of which has non-finite gradients.
template <class Optimizer, class OptimizerOptions>
std::pair<double, double> noise_scale(int replicas, at::Device device, const OptimizerOptions& options) {
  const ElasticJob job;
  expect_replicas(replicas, [&](int rank) {
    job.prepare();
    adaptdl::init_process_group("gloo");
    auto net = small_net();
    net->to(device);
    Optimizer optimizer(net->parameters(), options);
    AdaptiveDataParallel model(net, optimizer);
    Loader loader(Numbers(400), {.batch_size = 20, .shuffle = true});
    int step = 0;
    for ([[maybe_unused]] int epoch : remaining_epochs_until(2)) {
      for (auto& batch : loader) {
        const auto [x, y] = regression(batch.data);
        optimizer.zero_grad();
        auto loss = torch::mse_loss(model(x.to(device)), y.to(device));
        const bool overflows = ++step == 15;
        if (overflows) loss = loss * std::numeric_limits<float>::infinity();
        loss.backward();
        if (overflows) {
          for (auto& param : net->parameters()) param.mutable_grad().zero_();
        }
        optimizer.step();
      }
    }
    if (rank == 0) job.note(fmt::format("{} {}", model.gns().sqr_avg(), model.gns().var_avg()));
    adaptdl::destroy_process_group();
  });
  std::pair<double, double> found;
  std::istringstream(job.notes().at(0)) >> found.first >> found.second;
  return found;
}

TEST_CASE("the gradient noise scale on a GPU matches that on a CPU") {
  const auto check = [](const auto& measure) {
    const auto cpu = measure(kCpu), gpu = measure(kGpu);
    CHECK(cpu.second > 0);
    CHECK(gpu.first == doctest::Approx(cpu.first).epsilon(1e-3));
    CHECK(gpu.second == doctest::Approx(cpu.second).epsilon(1e-3));
  };
  for (const int replicas : {1, 2}) {
    CAPTURE(replicas);
    check([&](at::Device device) {
      return noise_scale<SGD>(replicas, device, torch::optim::SGDOptions(0.01).momentum(0.9));
    });
    check([&](at::Device device) { return noise_scale<Adam>(replicas, device, torch::optim::AdamOptions(0.01)); });
  }
}

TEST_CASE("squared norms of many gradients on a GPU match those on a CPU") {
  expect_replicas(1, [](int) {
    torch::manual_seed(4);
    using adaptdl::GroupGradient;
    std::vector<GroupGradient> here, there;
    std::vector<at::Tensor> before_here, before_there;
    for (std::size_t i = 0; i < 150; ++i) {  // more than one kernel call can process
      GroupGradient gradient{i % 2, torch::randn({static_cast<std::int64_t>(1 + i * i), 3}), {}};
      if (i % 3 == 0) gradient.preconditioner = {torch::rand_like(gradient.gradient) + 0.1, 0.3, 1e-8};
      if (i % 5 == 0) gradient.gradient = gradient.gradient.to(at::kHalf);
      here.push_back(gradient);
      before_here.push_back(torch::randn_like(gradient.gradient));
      if (gradient.preconditioner.exp_avg_sq.defined())
        gradient.preconditioner.exp_avg_sq = gradient.preconditioner.exp_avg_sq.to(kGpu);
      gradient.gradient = gradient.gradient.to(kGpu);
      there.push_back(gradient);
      before_there.push_back(before_here.back().to(kGpu));
    }
    adaptdl::GroupSums cpu(2, 3, kCpu), gpu(2, 3, kGpu);
    cpu.add_squared_norms(here);
    gpu.add_squared_norms(there);
    for (const auto& gradient : here) cpu.add_squared_norm(gradient);
    for (const auto& gradient : there) gpu.add_squared_norm(gradient);
    cpu.add_pairs(here, before_here);
    gpu.add_pairs(there, before_there);
    for (std::size_t i = 0; i < 6; ++i) EXPECT(std::abs(gpu.values()[i] / cpu.values()[i] - 1) < 1e-5);
    for (std::size_t i = 0; i < here.size(); ++i) EXPECT(before_there[i].cpu().equal(here[i].gradient));
  });
}

TEST_CASE("step times measure the GPU's work, not the time to queue it") {
  expect_replicas(1, [](int) {
    namespace internal = adaptdl::internal;
    const auto matrix = torch::randn({4096, 4096}, kGpu);
    const auto work = [&] {
      auto product = matrix;
      for (int i = 0; i < 50; ++i) product = product.mm(matrix).tanh();
    };
    work();
    torch::cuda::synchronize();
    const auto queued_from = std::chrono::steady_clock::now();
    const auto begin = internal::mark_time(kGpu);
    work();
    const auto end = internal::mark_time(kGpu);
    const std::chrono::duration<double> queued = std::chrono::steady_clock::now() - queued_from;
    const auto seconds = internal::seconds_between(begin, end);
    EXPECT(!seconds().has_value());  // the end of the work is not awaited
    torch::cuda::synchronize();
    const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - queued_from;
    EXPECT(seconds().has_value());
    EXPECT(*seconds() > queued.count());
    EXPECT(*seconds() <= whole.count());
  });
}

TEST_CASE("pinned batches arrive intact when they are copied to the GPU asynchronously") {
  for (const std::int64_t workers : {0, 2}) {
    CAPTURE(workers);
    const ElasticJob job;
    expect_replicas(1, [&](int) {
      job.prepare();
      adaptdl::init_process_group();
      Loader loader(Numbers(4000), {.batch_size = 100, .shuffle = true, .workers = workers, .pin_memory = true});
      for ([[maybe_unused]] int epoch : remaining_epochs_until(2)) {
        auto times = torch::zeros({4000}, torch::TensorOptions(kGpu).dtype(at::kLong));
        auto busy = torch::randn({2048, 2048}, kGpu);
        for (auto& batch : loader) {
          EXPECT(batch.data.is_pinned());
          busy = busy.mm(busy).tanh();  // delays the copy, but not the host
          times.index_add_(0, batch.data.to(kGpu, at::kLong, /*non_blocking=*/true),
                           torch::ones({100}, times.options()));
        }
        EXPECT(times.eq(1).all().item<bool>());
      }
      adaptdl::destroy_process_group();
    });
  }
}

TEST_CASE("SyncBatchNorm normalizes a batch across replicas that share a GPU") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    adaptdl::SyncBatchNorm norm(nn::BatchNormOptions(3));
    nn::BatchNorm2d whole(nn::BatchNormOptions(3));
    norm->to(kGpu);
    torch::manual_seed(5);
    for (int step = 0; step < 3; ++step) {
      auto all = torch::randn({8, 3, 4, 4}) + 3;
      auto part = all.narrow(0, 4 * rank, 4).to(kGpu).requires_grad_();
      all.requires_grad_();
      const auto output = norm->forward(part), expected = whole->forward(all);
      EXPECT(torch::allclose(output.cpu(), expected.narrow(0, 4 * rank, 4), 1e-4, 1e-5));
      output.square().mean(at::IntArrayRef{1, 2, 3}).pow(2).sum().backward();
      expected.square().mean(at::IntArrayRef{1, 2, 3}).pow(2).sum().backward();
      EXPECT(torch::allclose(part.grad().cpu(), all.grad().narrow(0, 4 * rank, 4), 1e-3, 1e-5));
      EXPECT(torch::allclose(norm->running_var.cpu(), whole->running_var, 1e-4, 1e-5));
    }
    adaptdl::destroy_process_group();
  });
}

TEST_CASE("the summary writer and the accumulator accept tensors on a GPU") {
  const ElasticJob job;
  expect_replicas(1, [&](int) {
    job.prepare();
    adaptdl::init_process_group();
    auto net = small_net();
    net->to(kGpu);
    const auto x = torch::rand({4, kFeatures}, kGpu);
    {
      adaptdl::SummaryWriter writer(job.path() / "events");
      writer.add_histogram("values", x, 0);
      writer.add_images("images", torch::rand({3, 1, 8, 8}, kGpu), 0);
      writer.add_pr_curve("curve", x > 0.5, x, 0);
      writer.add_graph(net, x);
      const auto trace = writer.profile(0);
      net->forward(x).sum().backward();
    }
    std::size_t traces = 0;
    for (const auto& file : std::filesystem::directory_iterator(job.path() / "events"))
      traces += file.path().native().ends_with(".pt.trace.json");
    EXPECT(traces == 1);
    adaptdl::Accumulator sums;
    sums["values"] += x;
    sums["values"] += x;
    const auto synchronized = sums.synchronized();
    EXPECT(sums["values"].tensor().equal((x + x).cpu()));
    adaptdl::destroy_process_group();
  });
}

}  // namespace gpu_test
