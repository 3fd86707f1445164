#include "adaptdl/torch/sync_batch_norm.h"

#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "error_of.h"
#include "replica_processes.h"

#include <doctest/doctest.h>

namespace sync_batch_norm_test {

namespace {

namespace nn = torch::nn;
using adaptdl::SyncBatchNorm;
using ::testing::error_of;
using testing::expect_replicas;
using ::testing::says;

// Returns images far from zero, for which a variance computed as the difference of single-precision sums would be
// wrong. Replica r has r + 1 samples.
at::Tensor images(int rank, int step) {
  torch::manual_seed(static_cast<std::uint64_t>(100 * step + rank));
  return torch::randn({rank + 1, 3, 4, 5}) + 300;
}

}  // namespace

TEST_CASE("SyncBatchNorm on several replicas matches BatchNorm on the whole batch" * doctest::test_suite("slow")) {
  for (const bool affine : {true, false}) {
    for (const auto momentum : {torch::optional<double>(0.1), torch::optional<double>()}) {
      expect_replicas(3, [&](int rank) {
        adaptdl::init_process_group("gloo");
        const auto options = nn::BatchNormOptions(3).affine(affine).momentum(momentum);
        SyncBatchNorm norm(options);
        nn::BatchNorm2d whole(options);
        for (int step = 0; step < 3; ++step) {
          std::vector<at::Tensor> all;
          for (int each = 0; each < 3; ++each) all.push_back(images(each, step));
          auto input = images(rank, step).requires_grad_(), all_input = torch::cat(all).requires_grad_();
          torch::manual_seed(static_cast<std::uint64_t>(step));
          const auto weights = torch::randn({6, 3, 4, 5});
          const auto first = rank * (rank + 1) / 2, last = first + rank + 1;
          const auto output = norm->forward(input), expected = whole->forward(all_input);
          EXPECT(torch::allclose(output, expected.slice(0, first, last), 1e-4, 1e-3));
          (output * weights.slice(0, first, last)).sum().backward();
          (expected * weights).sum().backward();
          EXPECT(torch::allclose(input.grad(), all_input.grad().slice(0, first, last), 1e-3, 1e-4));
          EXPECT(torch::allclose(norm->running_mean, whole->running_mean));
          EXPECT(torch::allclose(norm->running_var, whole->running_var, 1e-4));
          if (!affine) continue;
          // The gradients of the parameters are this replica's shares, which AdaptiveDataParallel averages.
          std::vector<at::Tensor> sums{norm->weight.grad().clone(), norm->bias.grad().clone()};
          for (auto& sum : sums) {
            std::vector<at::Tensor> one{sum};
            adaptdl::process_group().allreduce(one)->wait();
          }
          EXPECT(torch::allclose(sums[0], whole->weight.grad(), 1e-3, 1e-3));
          EXPECT(torch::allclose(sums[1], whole->bias.grad(), 1e-4, 1e-4));
          norm->zero_grad(), whole->zero_grad();
        }
        norm->eval(), whole->eval();
        EXPECT(torch::allclose(norm->forward(images(rank, 9)), whole->forward(images(rank, 9)), 1e-4, 1e-3));
        adaptdl::destroy_process_group();
      });
    }
  }
}

TEST_CASE("a model with SyncBatchNorm has equal parameters on every replica") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    torch::manual_seed(2);
    nn::Sequential net(nn::Linear(4, 8), SyncBatchNorm(8), nn::ReLU(), nn::Linear(8, 1));
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    adaptdl::AdaptiveDataParallel model(net, optimizer);
    for (int step = 0; step < 3; ++step) {
      torch::manual_seed(10 * step + rank);
      optimizer.zero_grad();
      model(torch::randn({4, 4})).square().mean().backward();
      optimizer.step();
    }
    for (const auto& tensor : net->parameters()) {
      std::vector<at::Tensor> first{tensor.detach().clone()};
      adaptdl::process_group().broadcast(first)->wait();
      EXPECT(first[0].equal(tensor));
    }
    for (const auto& tensor : net->buffers()) EXPECT(tensor.isfinite().all().item<bool>());
    adaptdl::destroy_process_group();
  });
}

TEST_CASE("without a process group, SyncBatchNorm matches BatchNorm and rejects one value per feature") {
  expect_replicas(2, [](int) {
    SyncBatchNorm norm(3);
    nn::BatchNorm2d usual(3);
    EXPECT(norm->forward(images(1, 0)).equal(usual->forward(images(1, 0))));
    EXPECT(says(error_of<adaptdl::UsageError>([&] { norm->forward(torch::ones({1, 3})); }), "one value per feature"));
    EXPECT(norm->running_var.equal(usual->running_var));
  });
}

TEST_CASE("inputs that cannot be normalized are rejected") {
  expect_replicas(2, [](int) {
    adaptdl::init_process_group("gloo");
    SyncBatchNorm norm(3);
    EXPECT(says(error_of<adaptdl::UsageError>([&] {
                  norm->forward(torch::ones({2, 4}));
                }),
                "SyncBatchNorm: invalid input of shape [2, 4]: expected (N, 3) or (N, 3, ...)"));
    adaptdl::destroy_process_group();
  });
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    SyncBatchNorm norm(3);
    EXPECT(says(error_of<adaptdl::UsageError>([&] {
                  norm->forward(torch::ones({rank, 3}));
                }),
                "one value per feature"));
    adaptdl::destroy_process_group();
  });
}

}  // namespace sync_batch_norm_test
