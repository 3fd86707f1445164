// Tests that replicas train the same model with averaged gradients, and that models and options that do not allow this
// are rejected.
#include "adaptdl/torch/parallel.h"

#include <doctest/doctest.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/torch/process_group.h"
#include "data_parallel_support.h"
#include "error_of.h"
#include "replica_processes.h"
#include "step_loops.h"

namespace data_parallel_test {

namespace {

namespace nn = torch::nn;
using adaptdl::AdaptiveDataParallel;
using adaptdl::DataParallelOptions;
using data_parallel_support::inputs;
using data_parallel_support::loss_of;
using data_parallel_support::small_model;
using ::testing::error_of;
using testing::expect_replicas;
using testing::flat;
using ::testing::says;

struct BranchesImpl : nn::Module {
  BranchesImpl() : left(register_module("left", nn::Linear(4, 3))), right(register_module("right", nn::Linear(4, 3))) {}
  at::Tensor forward(at::Tensor x, bool go_left) { return go_left ? left(x) : right(x); }
  nn::Linear left, right;
};
TORCH_MODULE(Branches);

at::Tensor of_rank_0(at::Tensor tensor) {
  std::vector<at::Tensor> tensors{tensor.clone()};
  adaptdl::process_group().broadcast(tensors)->wait();
  return tensors[0];
}

}  // namespace

TEST_CASE("gradients are averaged across replicas at every step, even after buckets are rebuilt") {
  for (const int replicas : {1, 2, 3}) {
    expect_replicas(replicas, [&](int rank) {
      adaptdl::init_process_group("gloo");
      auto net = small_model(), reference = small_model();
      torch::optim::SGD optimizer(net->parameters(), 0.1), reference_optimizer(reference->parameters(), 0.1);
      AdaptiveDataParallel model(net, optimizer);
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        loss_of(model(inputs(rank, step))).backward();
        reference_optimizer.zero_grad();
        at::Tensor total = torch::zeros({});
        for (int each = 0; each < replicas; ++each)
          total = total + loss_of(reference->forward(inputs(each, step))) / replicas;
        total.backward();
        for (std::size_t i = 0; i < net->parameters().size(); ++i) {
          EXPECT(torch::allclose(net->parameters()[i].grad(), reference->parameters()[i].grad(), 1e-5, 1e-7));
        }
        optimizer.step();
        reference_optimizer.step();
      }
      EXPECT(flat(*net).equal(of_rank_0(flat(*net))));
      adaptdl::destroy_process_group();
    });
  }
}

TEST_CASE("compressed gradients are averaged with the precision of the type to which they are compressed") {
  for (const bool view : {false, true}) {
    expect_replicas(2, [&](int rank) {
      adaptdl::init_process_group("gloo");
      auto net = small_model(), reference = small_model();
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      AdaptiveDataParallel model(net, optimizer,
                                 DataParallelOptions{.gradient_as_bucket_view = view,
                                                     .gradient_compression = adaptdl::GradientCompression::kFp16});
      bool rounded = false;
      for (int step = 0; step < 3; ++step) {
        for (auto& param : net->parameters()) {
          if (param.grad().defined()) param.mutable_grad().zero_();
        }
        reference->zero_grad();
        loss_of(model(inputs(rank, step))).backward();
        ((loss_of(reference->forward(inputs(0, step))) + loss_of(reference->forward(inputs(1, step)))) / 2).backward();
        for (std::size_t i = 0; i < net->parameters().size(); ++i) {
          const auto got = net->parameters()[i].grad(), expected = reference->parameters()[i].grad();
          EXPECT(got.scalar_type() == at::kFloat && torch::allclose(got, expected, 2e-3, 1e-4));
          EXPECT(got.equal(of_rank_0(got)));
          rounded = rounded || !torch::allclose(got, expected, 1e-6, 1e-8);
        }
      }
      EXPECT(rounded);
      adaptdl::destroy_process_group();
    });
  }
}

TEST_CASE("compression to a type that the backend cannot add is rejected") {
  expect_replicas(2, [](int) {
    adaptdl::init_process_group("gloo");
    std::vector<at::Tensor> probe{at::ones({1}, at::kBFloat16)};
    bool adds = true;
    try {
      adaptdl::process_group().allreduce(probe)->wait();
    } catch (const std::exception&) {
      adds = false;
    }
    auto net = small_model();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto error = error_of<adaptdl::UsageError>([&] {
      AdaptiveDataParallel model(net, optimizer,
                                 DataParallelOptions{.gradient_compression = adaptdl::GradientCompression::kBf16});
    });
    EXPECT(adds ? error.empty() : says(error, "the backend of this LibTorch cannot add BFloat16 gradients"));
  });
}

TEST_CASE("replicas start from the parameters of rank 0") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    {
      torch::NoGradGuard no_grad;
      for (auto& param : net->parameters()) param.add_(rank);
    }
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    AdaptiveDataParallel model(net, optimizer);
    EXPECT(flat(*net).equal(flat(*small_model())));
  });
}

TEST_CASE("the error of a replica whose model differs from rank 0's names the mismatched sizes") {
  const auto codes = testing::run_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    auto net = small_model(rank == 0 ? 8 : 9);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    std::string text;
    try {
      AdaptiveDataParallel model(net, optimizer);
    } catch (const std::exception& error) {
      text = error.what();
    }
    EXPECT(rank == 0 || text.find("sizes [9, 4]") != std::string::npos);
  });
  CHECK(codes[1] == 0);
}

TEST_CASE("BatchNorm buffers are synchronized from rank 0 before a forward pass in evaluation") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    nn::Sequential net(nn::Linear(4, 8), nn::BatchNorm1d(8), nn::Linear(8, 2));
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    AdaptiveDataParallel model(net, optimizer);
    const auto mean = [&] { return net->named_buffers()["1.running_mean"]; };
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      loss_of(model(inputs(rank, step))).backward();
      optimizer.step();
    }
    const auto before = mean().clone();
    const auto theirs = of_rank_0(before);
    EXPECT(rank == 0 || !before.equal(theirs));  // the statistics are those of the last step's batches, which differed
    model->eval();
    torch::NoGradGuard no_grad;
    model(inputs(rank, 9));
    EXPECT(mean().equal(of_rank_0(mean())));
    adaptdl::destroy_process_group();
  });
}

TEST_CASE("find_unused_parameters allows parameters without a gradient") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    torch::manual_seed(1);
    Branches net;
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    AdaptiveDataParallel model(net, optimizer, DataParallelOptions{.find_unused_parameters = true});
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      loss_of(model(inputs(rank, step), step % 2 == 0)).backward();
      optimizer.step();
    }
    EXPECT(flat(*net).equal(of_rank_0(flat(*net))));
    adaptdl::destroy_process_group();
  });
}

TEST_CASE("parameters without a gradient fail with a one-line error that names find_unused_parameters") {
  const auto is_clear = [](const std::string& error) {
    return says(error, "'adaptdl-dataparallel': no gradient for ") && says(error, "find_unused_parameters") &&
           !says(error, "\n");
  };
  for (const int replicas : {1, 2}) {
    expect_replicas(replicas, [&](int rank) {
      adaptdl::init_process_group("gloo");
      Branches net;
      adaptdl::Adaptive<torch::optim::SGD> optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
      AdaptiveDataParallel model(net, optimizer);
      const auto loss = loss_of(model(inputs(rank, 0), true));
      const auto error = error_of<adaptdl::UsageError>([&] { loss.backward(); });
      EXPECT(is_clear(error) && says(error, "right.weight, right.bias"));
    });
    expect_replicas(replicas, [&](int rank) {
      adaptdl::init_process_group("gloo");
      Branches net;
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      AdaptiveDataParallel model(net, optimizer);
      loss_of(model(inputs(rank, 0), true)).backward();
      EXPECT(is_clear(error_of<adaptdl::UsageError>([&] { model(inputs(rank, 1), true); })));
    });
  }
}

TEST_CASE("small buckets give the same parameters as a single large one") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    std::vector<at::Tensor> results;
    for (const std::size_t cap : {std::size_t{0}, std::size_t{25}}) {
      torch::manual_seed(5);
      nn::Sequential net(nn::Linear(4, 600), nn::ReLU(), nn::Linear(600, 600), nn::ReLU(), nn::Linear(600, 2));
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      AdaptiveDataParallel model(net, optimizer,
                                 DataParallelOptions{.name = "cap" + std::to_string(cap), .bucket_cap_mb = cap});
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        loss_of(model(inputs(rank, step))).backward();
        optimizer.step();
      }
      results.push_back(flat(*net));
    }
    EXPECT(results[0].equal(results[1]));
    adaptdl::destroy_process_group();
  });
}

TEST_CASE("LBFGS, a model without parameters and a duplicate name are rejected") {
  expect_replicas(1, [](int) {
    adaptdl::init_process_group("gloo");
    const auto refusal = [](const auto& make) {
      try {
        make();
      } catch (const adaptdl::UsageError& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    auto net = small_model();
    torch::optim::LBFGS lbfgs(net->parameters());
    EXPECT(refusal([&] { AdaptiveDataParallel model(net, lbfgs); }).find("LBFGS") != std::string::npos);
    nn::Sequential empty(nn::Tanh{});
    torch::optim::SGD sgd(net->parameters(), 0.1);
    EXPECT(refusal([&] { AdaptiveDataParallel model(empty, sgd); }).find("no parameter") != std::string::npos);
    AdaptiveDataParallel first(net, sgd);
    EXPECT(refusal([&] { AdaptiveDataParallel second(net, sgd); }).find("adaptdl-dataparallel") != std::string::npos);
    AdaptiveDataParallel other(net, sgd, DataParallelOptions{.name = "other"});
  });
}

TEST_CASE("construction without a process group fails and names init_process_group") {
  expect_replicas(1, [](int) {
    auto net = small_model();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    std::string text;
    try {
      AdaptiveDataParallel model(net, optimizer);
    } catch (const adaptdl::Error& error) {
      text = error.what();
    }
    EXPECT(text.find("init_process_group") != std::string::npos);
  });
}

}  // namespace data_parallel_test
