// Trains a common network for small images on CIFAR-10, or on generated images if CIFAR-10 is not available.
#include <adaptdl/torch.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include "cifar_dataset.h"
#include "models/image_model.h"
#include "training.h"

using programs::CifarDataset;
using Model = adaptdl::AdaptiveDataParallel<programs::ImageModelPtr>;
using Loader = adaptdl::AdaptiveDataLoader<CifarDataset>;

struct CifarOptions {
  std::string model = "lenet";
  std::size_t samples = 5000;  // number of generated training images; a fifth as many are generated for testing
};

// Makes one pass over the data, and trains if there is an optimizer. Returns the mean loss and the fraction of correct
// answers.
std::pair<double, double> pass(Model& model, torch::Device device, Loader& loader, torch::optim::Optimizer* optimizer) {
  model->train(optimizer != nullptr);
  torch::AutoGradMode gradients(optimizer != nullptr);
  adaptdl::Accumulator stats;
  for (auto& batch : loader) {
    const auto images = batch.data.to(device), labels = batch.target.to(device);
    const auto output = model(images);
    const auto loss = torch::nn::functional::cross_entropy(output, labels);
    if (optimizer) {
      optimizer->zero_grad();
      loss.backward();
      optimizer->step();
    }
    const auto samples = static_cast<double>(labels.size(0));
    stats += {{"loss", loss.item<double>() * samples},
              {"right", output.argmax(1).eq(labels).sum().item<double>()},
              {"samples", samples}};
  }
  auto synchronized = stats.synchronized();
  return {stats["loss"] / stats["samples"], stats["right"] / stats["samples"]};
}

void train_cifar(const programs::Options& options, const CifarOptions& own) {
  torch::manual_seed(options.seed);
  const auto device = adaptdl::replica_device();
  const bool generated = options.data.empty();
  auto training = generated ? CifarDataset::generate(own.samples, 1) : CifarDataset::read(options.data, "train");
  const auto testing =
      generated ? CifarDataset::generate(own.samples / 5 + 1, 2) : CifarDataset::read(options.data, "test");
  auto net = programs::make_image_model(own.model);
  net->to(device);
  auto optimizer = programs::make_optimizer(net->parameters(), options, {.momentum = 0.9, .weight_decay = 5e-4});
  adaptdl::CosineAnnealingLR scheduler(*optimizer, options.epochs);

  adaptdl::init_process_group();
  Model model(net, *optimizer, scheduler, {.stop_on_nan = options.stop_on_nan});
  Loader loader(training.augment(),
                {.batch_size = options.batch_size, .shuffle = true, .drop_last = true, .seed = options.seed});
  Loader test_loader(testing, {.batch_size = 500});
  programs::autoscale(loader, options);
  programs::Reporter reporter(options);

  for (int epoch : adaptdl::remaining_epochs_until(options.epochs)) {
    programs::Timer timer;
    const auto [loss, train_accuracy] = pass(model, device, loader, optimizer.get());
    const auto [test_loss, accuracy] = pass(model, device, test_loader, nullptr);
    scheduler.step();
    reporter.report(epoch, loader, model,
                    {{"loss", loss},
                     {"train_accuracy", train_accuracy},
                     {"test_loss", test_loss},
                     {"accuracy", accuracy},
                     {"seconds", timer.seconds()}});
  }
  adaptdl::destroy_process_group();
}

int main(int argc, char** argv) {
  CifarOptions own;
  return programs::run_main(
      argc, argv, {.epochs = 10, .batch_size = 64, .lr = 0.05},
      [&](const programs::Options& options) { train_cifar(options, own); },
      [&](CLI::App& app) {
        app.add_option("--model", own.model, "Model to train")
            ->check(CLI::IsMember(programs::image_models()))
            ->capture_default_str();
        app.add_option("--samples", own.samples, "Number of training images to generate without --data")
            ->check(programs::positive())
            ->capture_default_str();
      });
}
