// Tests the gradients of a step when batches and passes accumulate, and the noise scale that is measured from them.
#include <torch/torch.h>

#include <cmath>
#include <optional>

#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "replica_processes.h"
#include "step_loops.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace accumulated_step_test {

namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using adaptdl::Adaptive;
using adaptdl::AdaptiveDataParallel;
using adaptdl::DataParallelOptions;
using testing::expect_replicas;
using testing::flat;
using testing::inputs;
using testing::loop;
using testing::small_model;

struct BranchesImpl : nn::Module {
  BranchesImpl() : left(register_module("left", nn::Linear(4, 2))), right(register_module("right", nn::Linear(4, 2))) {}
  at::Tensor forward(at::Tensor x, bool go_left) { return go_left ? left(x) : right(x); }
  nn::Linear left, right;
};
TORCH_MODULE(Branches);

}  // namespace

TEST_CASE("a step uses the mean gradient of all batches and replicas, even with zero_grad() in between") {
  for (const int replicas : {1, 2}) {
    for (const bool view : {false, true}) {
      expect_replicas(replicas, [&](int rank) {
        adaptdl::init_process_group("gloo");
        auto net = small_model(), reference = small_model();
        Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
        optim::SGD reference_optimizer(reference->parameters(), 0.1);
        AdaptiveDataParallel model(net, optimizer, DataParallelOptions{.gradient_as_bucket_view = view});
        loop(replicas, 2, 3, [&](int batch) {
          const auto before = flat(*net);
          auto loss = model(inputs(rank, batch)).square().mean();
          optimizer.zero_grad();
          loss.backward();
          optimizer.step();
          if (batch % 3 != 2) {
            EXPECT(flat(*net).equal(before));
            return;
          }
          reference_optimizer.zero_grad();
          for (int earlier = batch - 2; earlier <= batch; ++earlier) {
            for (int each = 0; each < replicas; ++each)
              (reference->forward(inputs(each, earlier)).square().mean() / (3 * replicas)).backward();
          }
          reference_optimizer.step();
          EXPECT(torch::allclose(flat(*net), flat(*reference), 1e-5, 1e-6));
        });
        EXPECT(std::abs(model.gns().progress() - 3) < 1e-9);
        adaptdl::destroy_process_group();
      });
    }
  }
}

TEST_CASE("a plain optimizer steps once for all accumulated batches") {
  expect_replicas(1, [](int rank) {
    adaptdl::init_process_group("gloo");
    auto net = small_model();
    optim::SGD optimizer(net->parameters(), 0.1);
    AdaptiveDataParallel model(net, optimizer);
    loop(1, 1, 2, [&](int batch) {
      const auto before = flat(*net);
      optimizer.zero_grad();
      model(inputs(rank, batch)).square().mean().backward();
      optimizer.step();
      EXPECT(flat(*net).equal(before) == (batch % 2 == 0));
    });
  });
}

TEST_CASE("a parameter used only in an earlier batch of the step gets its gradient") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    Branches net;
    Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
    AdaptiveDataParallel model(net, optimizer, DataParallelOptions{.find_unused_parameters = true});
    loop(2, 1, 2, [&](int batch) {
      const auto left = net->left->weight.detach().clone(), right = net->right->weight.detach().clone();
      optimizer.zero_grad();
      model(inputs(rank, batch), batch % 2 == 0).sum().backward();
      optimizer.step();
      if (batch % 2 == 0) return;
      auto x = torch::zeros({1, 4}), y = torch::zeros({1, 4});
      for (int each = 0; each < 2; ++each) x += inputs(each, batch - 1).sum(0) / 4, y += inputs(each, batch).sum(0) / 4;
      EXPECT(torch::allclose(left - net->left->weight, 0.1 * x.expand({2, 4}), 1e-4, 1e-6));
      EXPECT(torch::allclose(right - net->right->weight, 0.1 * y.expand({2, 4}), 1e-4, 1e-6));
    });
  });
}

TEST_CASE("parameters used by replicas in different batches of a step get the mean gradient") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    Branches net;
    Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
    AdaptiveDataParallel model(net, optimizer, DataParallelOptions{.find_unused_parameters = true});
    const auto left = net->left->weight.detach().clone(), right = net->right->weight.detach().clone();
    loop(2, 1, 1, [&](int batch) {
      optimizer.zero_grad();
      model(inputs(rank, batch), (batch == 0) == (rank == 0)).sum().backward();
      optimizer.step();
    });
    const auto x = (inputs(0, 0) + inputs(1, 1)).sum(0) / 4, y = (inputs(0, 1) + inputs(1, 0)).sum(0) / 4;
    EXPECT(torch::allclose(left - net->left->weight, 0.1 * x.expand({2, 4}), 1e-4, 1e-6));
    EXPECT(torch::allclose(right - net->right->weight, 0.1 * y.expand({2, 4}), 1e-4, 1e-6));
    adaptdl::destroy_process_group();
  });
}

TEST_CASE("sparse gradients are averaged and accumulated, and the noise scale includes them") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    torch::manual_seed(1);
    nn::Embedding net(nn::EmbeddingOptions(10, 3).sparse(true));
    Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
    AdaptiveDataParallel model(net, optimizer);
    loop(2, 1, 1, [&](int batch) {
      const auto before = net->weight.detach().clone();
      optimizer.zero_grad();
      // Rank 0 uses row 1 twice, and rank 1 uses row 2 + batch.
      model(rank == 0 ? at::tensor({1, 1}) : at::tensor({2 + batch})).sum().backward();
      optimizer.step();
      if (batch == 0) return;
      const auto change = (before - net->weight.detach()) / 0.1;
      for (int row = 0; row < 10; ++row) {
        const double expected = row == 1 ? 2 * 2 / 4.0 : row == 2 || row == 3 ? 1 / 4.0 : 0;
        EXPECT(std::abs(change[row][0].item<double>() - expected) < 1e-5);
      }
      // The squared norms of the gradients are 12, 12, 3 and 3; the squared norm of their mean is 3 (1 + 1/16 + 1/16).
      const double local = 7.5, total = 3 * 1.125;
      EXPECT(std::abs(model.gns().raw_sqr_avg()[0] - (4 * total - local) / 3) < 1e-5);
      EXPECT(std::abs(model.gns().raw_var_avg()[0] - (local - total) / 3) < 1e-5);
    });
  });
}

namespace {

// Three passes make a step. With `sync`, each pass averages its gradients across the replicas; otherwise, only the last
// one does.
void check_passes(bool sync) {
  for (const int replicas : {1, 2}) {
    expect_replicas(replicas, [&](int rank) {
      adaptdl::init_process_group("gloo");
      nn::Linear net(nn::LinearOptions(4, 1).bias(false));
      Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0));
      AdaptiveDataParallel model(net, optimizer);
      double sqr = 0, var = 0;
      for (int step = 0; step < 3; ++step) {
        // The passes are parts of this replica's batch. The first pass of the first step is dropped.
        for (int pass = step == 0 ? -1 : 0; pass < 3; ++pass) {
          std::optional<decltype(model)::NoSync> no_sync;
          if (!sync && pass < 2) no_sync.emplace(model.no_sync());
          const auto loss = model(inputs(rank, 10 * step + pass + 1)).sum() / 3;
          if (pass <= 0) optimizer.zero_grad();
          loss.backward();
        }
        optimizer.step();
        auto mean = torch::zeros({4});
        double squares = 0;
        for (int pass = 0; pass < 3; ++pass) {
          for (int each = 0; each < replicas; ++each) {
            const auto gradient = inputs(each, 10 * step + pass + 1).sum(0);
            mean += gradient / (3 * replicas);
            squares += gradient.square().sum().item<double>() / (3 * replicas);
          }
        }
        EXPECT(torch::allclose(net->weight.grad().flatten(), mean, 1e-5, 1e-6));
        const double count = 3 * replicas, total = mean.square().sum().item<double>();
        sqr = 0.999 * sqr + (count * total - squares) / (count - 1);
        var = 0.999 * var + (squares - total) / (count - 1);
        const double weight = 1 + (step > 0 ? 0.999 : 0) + (step > 1 ? 0.999 * 0.999 : 0);
        EXPECT(std::abs(model.gns().raw_sqr_avg()[0] - sqr / weight) < 1e-4);
        EXPECT(std::abs(model.gns().raw_var_avg()[0] - var / weight) < 1e-4);
        EXPECT(model.gain() == 1);
      }
      adaptdl::destroy_process_group();
    });
  }
}

}  // namespace

TEST_CASE("the noise scale includes all backward passes before a step") { check_passes(true); }

TEST_CASE("the noise scale includes passes without synchronization") { check_passes(false); }

TEST_CASE("several forward passes before a backward pass count as one, with and without accumulation") {
  for (const int replicas : {1, 2}) {
    for (const int accumulation : {0, 2}) {
      expect_replicas(replicas, [&](int rank) {
        adaptdl::init_process_group("gloo");
        auto net = small_model(), reference = small_model();
        Adaptive<optim::SGD> optimizer(net->parameters(), optim::SGDOptions(0.1));
        optim::SGD plain(reference->parameters(), 0.1);
        AdaptiveDataParallel model(net, optimizer);
        const int batches = accumulation + 1;
        loop(replicas, accumulation, 2, [&](int batch) {
          optimizer.zero_grad();
          model(inputs(rank, batch));  // not followed by a backward pass
          (model(inputs(rank, batch)).square().mean() + model(inputs(rank, 50 + batch)).square().mean()).backward();
          optimizer.step();
          if (batch % batches != accumulation) return;
          plain.zero_grad();
          for (int earlier = batch - accumulation; earlier <= batch; ++earlier) {
            for (int each = 0; each < replicas; ++each) {
              for (const int input : {earlier, 50 + earlier})
                (reference->forward(inputs(each, input)).square().mean() / (batches * replicas)).backward();
            }
          }
          plain.step();
          EXPECT(torch::allclose(flat(*net), flat(*reference), 1e-5, 1e-6));
        });
        EXPECT(std::abs(model.gns().progress() - 2) < 1e-9);
        adaptdl::destroy_process_group();
      });
    }
  }
}

}  // namespace accumulated_step_test
