// Recommends items to users by neural collaborative filtering (He et al., 2017, https://arxiv.org/abs/1708.05031):
// trains NeuMF on ratings in MovieLens' format or on generated choices, and measures the hit rate at 10.
#include <adaptdl/error.h>
#include <adaptdl/torch.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include "interactions.h"
#include "training.h"

using programs::Interactions, programs::RankedItems, programs::RatedPairs;

struct NcfOptions {
  std::int64_t factors = 8;    // width of the generalized matrix factorization; the perceptron is four times as wide
  std::int64_t negatives = 4;  // items drawn for each choice
  bool sparse = false;         // whether the gradients of the embeddings are sparse
};

// A generalized matrix factorization and a multilayer perceptron, with separate embeddings and a common last layer.
struct NeuMfImpl : torch::nn::Module {
  NeuMfImpl(const Interactions& data, const NcfOptions& own)
      : users(embedding("users", data.users, own.factors, own.sparse)),
        items(embedding("items", data.items, own.factors, own.sparse)),
        mlp_users(embedding("mlp_users", data.users, 4 * own.factors, own.sparse)),
        mlp_items(embedding("mlp_items", data.items, 4 * own.factors, own.sparse)) {
    for (auto width = 8 * own.factors; width > own.factors; width /= 2) {
      mlp->push_back(torch::nn::Linear(width, width / 2));
      mlp->push_back(torch::nn::ReLU());
    }
    register_module("mlp", mlp);
    last = register_module("last", torch::nn::Linear(2 * own.factors, 1));
  }

  // `pairs`: int64 [..., 2]. Returns [...], the log-odds that the user chooses the item.
  torch::Tensor forward(const torch::Tensor& pairs) {
    const auto user = pairs.select(-1, 0), item = pairs.select(-1, 1);
    const auto product = users(user) * items(item);
    const auto perceptron = mlp->forward(torch::cat({mlp_users(user), mlp_items(item)}, -1));
    return last(torch::cat({product, perceptron}, -1)).squeeze(-1);
  }

  torch::nn::Embedding embedding(const std::string& name, int64_t count, int64_t factors, bool sparse) {
    auto module =
        register_module(name, torch::nn::Embedding(torch::nn::EmbeddingOptions(count, factors).sparse(sparse)));
    torch::nn::init::normal_(module->weight, 0, 0.1);
    return module;
  }

  torch::nn::Embedding users, items, mlp_users, mlp_items;
  torch::nn::Sequential mlp;
  torch::nn::Linear last{nullptr};
};
TORCH_MODULE(NeuMf);

using Model = adaptdl::AdaptiveDataParallel<NeuMf>;

// Returns the fraction of users whose held-out item is among the ten best of a hundred.
double hit_rate(Model& model, torch::Device device, adaptdl::AdaptiveDataLoader<RankedItems>& loader) {
  model->eval();
  torch::NoGradGuard no_grad;
  adaptdl::Accumulator stats;
  for (auto& candidates : loader) {
    const auto scores = model(candidates.to(device));
    const auto better = scores.gt(scores.slice(1, 0, 1)).sum(1);
    stats["hits"] += better.lt(10).sum().item<double>();
    stats["users"] += static_cast<double>(candidates.size(0));
  }
  auto synchronized = stats.synchronized();
  return stats["hits"] / stats["users"];
}

void train_ncf(const programs::Options& options, const NcfOptions& own) {
  if (own.sparse && options.optimizer != "sgd") throw adaptdl::UsageError("--sparse requires --optimizer sgd");
  torch::manual_seed(options.seed);
  const auto device = adaptdl::replica_device();
  const auto data = std::make_shared<const Interactions>(options.data.empty() ? Interactions::generate(options.seed)
                                                                              : Interactions::read(options.data));
  NeuMf net(*data, own);
  net->to(device);
  auto optimizer = programs::make_optimizer(net->parameters(), options);

  adaptdl::init_process_group();
  Model model(net, *optimizer, {.stop_on_nan = options.stop_on_nan});
  adaptdl::AdaptiveDataLoader loader(RatedPairs(data, own.negatives),
                                     {.batch_size = options.batch_size, .shuffle = true, .seed = options.seed});
  adaptdl::AdaptiveDataLoader test_loader(RankedItems(data), {.batch_size = 256});
  programs::autoscale(loader, options);
  programs::Reporter reporter(options);

  for (int epoch : adaptdl::remaining_epochs_until(options.epochs)) {
    programs::Timer timer;
    adaptdl::Accumulator stats;
    model->train();
    for (auto& batch : loader) {
      optimizer->zero_grad();
      auto loss = torch::binary_cross_entropy_with_logits(model(batch.data.to(device)), batch.target.to(device));
      loss.backward();
      optimizer->step();
      stats["loss"] += loss.item<double>() * static_cast<double>(batch.target.size(0));
      stats["samples"] += static_cast<double>(batch.target.size(0));
    }
    const double hits = hit_rate(model, device, test_loader);
    auto synchronized = stats.synchronized();
    reporter.report(epoch, loader, model,
                    {{"loss", stats["loss"] / stats["samples"]}, {"hit_rate", hits}, {"seconds", timer.seconds()}});
  }
  adaptdl::destroy_process_group();
}

int main(int argc, char** argv) {
  NcfOptions own;
  return programs::run_main(
      argc, argv, {.epochs = 10, .batch_size = 256, .optimizer = "adam", .lr = 0.002},
      [&](const programs::Options& options) { train_ncf(options, own); },
      [&](CLI::App& app) {
        app.add_option("--factors", own.factors, "Number of factors per user and item")
            ->check(programs::positive())
            ->capture_default_str();
        app.add_option("--negatives", own.negatives,
                       "Number of negative items (items that the user did not choose) per choice")
            ->check(CLI::NonNegativeNumber)
            ->capture_default_str();
        app.add_flag("--sparse", own.sparse, "Use sparse gradients for the embeddings; requires --optimizer sgd");
      });
}
