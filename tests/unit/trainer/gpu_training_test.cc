// Tests that training on a GPU gives the same result as training with plain LibTorch, on a CPU, without restarts, or
// with a net that keeps its activations. One GPU suffices: NCCL allows one replica per GPU, so replicas that share it
// use Gloo.
#include <fmt/format.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "adaptdl/collective.h"
#include "adaptdl/signal.h"
#include "adaptdl/torch/activation_checkpoint.h"
#include "adaptdl/torch/amp.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "adaptdl/torch/scaling_rules.h"
#include "elastic_job.h"
#include "gpu_support.h"
#include "numbers.h"
#include "replica_processes.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace gpu_training_test {

namespace {

namespace nn = torch::nn;
using adaptdl::AdaptiveDataParallel;
using adaptdl::remaining_epochs_until;
using gpu_support::kCpu;
using gpu_support::kGpu;
using gpu_support::regression;
using gpu_support::small_net;
using testing::ElasticJob;
using testing::expect_replicas;
using testing::kCheckpointed;
using testing::Numbers;
using Loader = adaptdl::AdaptiveDataLoader<Numbers>;
using SGD = adaptdl::Adaptive<torch::optim::SGD>;
using Adam = adaptdl::Adaptive<torch::optim::Adam>;

// Returns whether tensors are equal except for rounding, which depends on the order in which a device adds.
bool close(const at::Tensor& a, const at::Tensor& b) { return torch::allclose(a.cpu(), b.cpu(), 1e-4, 1e-6); }

at::Tensor flat(const nn::Module& model) {
  std::vector<at::Tensor> parts;
  for (const auto& tensor : model.parameters()) parts.push_back(tensor.detach().cpu().flatten());
  return torch::cat(parts);
}

// Trains three epochs with Adam, each run on the next of `devices`. Each run is stopped after the number of steps in
// `stops`, except the last. Returns the parameters in hexadecimal, and notes the losses of rank 0.
std::string train(const ElasticJob& job, const std::string& backend, int replicas,
                  const std::vector<at::Device>& devices, const std::vector<std::size_t>& stops, double dropout) {
  for (std::size_t run = 0; run <= stops.size(); ++run) {
    const auto codes = testing::run_replicas(replicas, [&](int rank) {
      job.prepare();
      const auto device = devices[run % devices.size()];
      adaptdl::init_process_group(backend);
      auto net = small_net(dropout);
      net->to(device);
      Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));
      AdaptiveDataParallel model(net, optimizer);
      Loader loader(Numbers(120), {.batch_size = 12, .shuffle = true});
      std::size_t steps = 0;
      for ([[maybe_unused]] int epoch : remaining_epochs_until(3)) {
        for (auto& batch : loader) {
          const auto [x, y] = regression(batch.data);
          optimizer.zero_grad();
          auto loss = torch::mse_loss(model(x.to(device)), y.to(device));
          loss.backward();
          optimizer.step();
          if (rank == 0) job.note(fmt::format("{}", loss.item<double>()));
          if (run < stops.size() && ++steps == stops[run] && rank == 0) adaptdl::signal::request_stop(SIGTERM);
        }
      }
      std::string text;
      const auto values = flat(*net);
      for (std::int64_t i = 0; i < values.numel(); ++i) text += fmt::format(" {:a}", values[i].item<float>());
      for (const auto& other : adaptdl::collective::world().allgather(text)) EXPECT(other == text);
      if (rank == 0) std::ofstream(job.path() / "parameters") << text;
      adaptdl::destroy_process_group();
    });
    const int expected = run < stops.size() ? kCheckpointed : 0;
    if (codes != std::vector<int>(static_cast<std::size_t>(replicas), expected))
      throw std::runtime_error(fmt::format("run {} ended with {}: {}", run, codes[0], job.errors()));
  }
  std::ifstream file(job.path() / "parameters");
  return {std::istreambuf_iterator<char>(file), {}};
}

// A small net that keeps its activations or recomputes them.
struct CheckpointedNetImpl : nn::Module {
  explicit CheckpointedNetImpl(bool recomputes) : recomputes_(recomputes) { register_module("net", net_); }
  at::Tensor forward(const at::Tensor& x) {
    return recomputes_ ? adaptdl::checkpoint_activations(net_, x) : net_->forward(x);
  }

 private:
  nn::Sequential net_ = small_net(0.5);
  const bool recomputes_;
};
TORCH_MODULE(CheckpointedNet);

}  // namespace

TEST_CASE("training on a GPU matches plain LibTorch with both backends") {
  for (const char* const backend : {"nccl", "gloo"}) {
    CAPTURE(backend);
    expect_replicas(1, [&](int) {
      adaptdl::init_process_group(backend);
      auto net = small_net(), reference = small_net();
      net->to(kGpu);
      reference->to(kGpu);
      torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
      torch::optim::SGD plain(reference->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
      AdaptiveDataParallel model(net, optimizer);
      for (int step = 0; step < 20; ++step) {
        const auto [x, y] = regression(torch::arange(16 * step, 16 * (step + 1)));
        optimizer.zero_grad();
        torch::mse_loss(model(x.to(kGpu)), y.to(kGpu)).backward();
        optimizer.step();
        plain.zero_grad();
        torch::mse_loss(reference->forward(x.to(kGpu)), y.to(kGpu)).backward();
        plain.step();
      }
      EXPECT(close(flat(*net), flat(*reference)));
      adaptdl::destroy_process_group();
    });
  }
}

TEST_CASE("replicas that share a GPU average their gradients and keep equal parameters") {
  for (const int replicas : {2, 3}) {
    expect_replicas(replicas, [&](int rank) {
      adaptdl::init_process_group("gloo");
      auto net = small_net(), reference = small_net();
      net->to(kGpu);
      torch::optim::SGD optimizer(net->parameters(), 0.1), plain(reference->parameters(), 0.1);
      AdaptiveDataParallel model(net, optimizer);
      for (int step = 0; step < 4; ++step) {
        const auto [x, y] = regression(torch::arange(12) + 100 * step);
        const auto share = 12 / replicas;
        optimizer.zero_grad();
        torch::mse_loss(model(x.narrow(0, rank * share, share).to(kGpu)), y.narrow(0, rank * share, share).to(kGpu))
            .backward();
        plain.zero_grad();
        torch::mse_loss(reference->forward(x), y).backward();
        for (std::size_t i = 0; i < net->parameters().size(); ++i)
          EXPECT(close(net->parameters()[i].grad(), reference->parameters()[i].grad()));
        optimizer.step();
        plain.step();
      }
      std::vector<at::Tensor> first = {flat(*net)};
      adaptdl::process_group().broadcast(first)->wait();
      EXPECT(first[0].equal(flat(*net)));
      adaptdl::destroy_process_group();
    });
  }
}

TEST_CASE("restarts on a GPU do not change the trained parameters, bit for bit, even with dropout") {
  // Each process chooses the cuBLAS kernels independently, but chooses the same ones for the same sizes.
  for (const auto& [backend, replicas] : {std::pair{"nccl", 1}, {"gloo", 2}}) {
    CAPTURE(backend);
    const ElasticJob whole, stopped;
    const auto expected = train(whole, backend, replicas, {kGpu}, {}, 0.3);
    CHECK(train(stopped, backend, replicas, {kGpu}, {1, 7, 13}, 0.3) == expected);
    CHECK(stopped.notes() == whole.notes());
    CHECK(whole.notes().size() == 30);
  }
}

TEST_CASE("moving a job between GPU and CPU does not change its losses") {
  const ElasticJob whole, moved;
  train(whole, "gloo", 2, {kCpu}, {}, 0);
  train(moved, "gloo", 2, {kGpu, kCpu}, {5, 6, 7}, 0);
  const auto expected = whole.notes(), losses = moved.notes();
  REQUIRE(losses.size() == expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    CHECK(std::stod(losses[i]) == doctest::Approx(std::stod(expected[i])).epsilon(1e-3));
}

TEST_CASE("autocast on a GPU computes in half precision, and a step with overflowing gradients is skipped") {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    expect_replicas(1, [&](int) {
      adaptdl::init_process_group();
      auto net = small_net();
      net->to(kGpu);
      SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05));
      adaptdl::GradScaler scaler({.init_scale = 1024});
      AdaptiveDataParallel model(net, optimizer, {.grad_scaler = &scaler});
      double first = 0, last = 0;
      for (int step = 0; step < 200; ++step) {
        const auto [x, y] = regression(torch::arange(32));
        at::Tensor loss;
        {
          const adaptdl::Autocast autocast(at::kCUDA, dtype);
          const auto output = model(x.to(kGpu));
          EXPECT(output.scalar_type() == dtype);
          loss = torch::mse_loss(output, y.to(kGpu));
        }
        const bool overflows = step == 100;
        if (overflows) loss = loss * std::numeric_limits<float>::infinity();
        optimizer.zero_grad();
        scaler.scale(loss).backward();
        const auto before = flat(*net);
        EXPECT(scaler.step(optimizer) != overflows);
        EXPECT(flat(*net).equal(before) == overflows);
        scaler.update();
        if (step == 0) first = loss.item<double>();
        last = loss.item<double>();
      }
      EXPECT(scaler.scale() == 512);
      EXPECT(last < 0.5 * first);
      adaptdl::destroy_process_group();
    });
  }
}

TEST_CASE("recomputing activations on a GPU does not change the trained parameters, bit for bit") {
  for (const bool autocast : {false, true}) {
    CAPTURE(autocast);
    expect_replicas(1, [&](int) {
      adaptdl::init_process_group();
      std::vector<at::Tensor> parameters, random;
      for (const bool recomputed : {false, true}) {
        CheckpointedNet net(recomputed);
        net->to(kGpu);
        SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05));
        AdaptiveDataParallel model(net, optimizer, {.name = recomputed ? "recomputed" : "kept"});
        torch::manual_seed(11);
        for (int step = 0; step < 5; ++step) {
          const auto [x, y] = regression(torch::arange(32) + 32 * step);
          at::Tensor loss;
          {
            const adaptdl::Autocast region(at::kCUDA, at::kBFloat16, autocast);
            loss = torch::mse_loss(model(x.to(kGpu)), y.to(kGpu));
          }
          optimizer.zero_grad();
          loss.backward();
          optimizer.step();
        }
        parameters.push_back(flat(*net));
        random.push_back(torch::rand({4}, kGpu));
      }
      EXPECT(torch::equal(parameters[0], parameters[1]));
      EXPECT(torch::equal(random[0], random[1]));
      adaptdl::destroy_process_group();
    });
  }
}

}  // namespace gpu_training_test
