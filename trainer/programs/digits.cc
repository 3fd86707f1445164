// Trains a small convolutional network on images in MNIST's format. docs/tutorial.md develops this program from a plain
// LibTorch program.
#include <adaptdl/torch.h>
#include <torch/torch.h>

#include "idx_dataset.h"
#include "training.h"

namespace F = torch::nn::functional;
using programs::IdxDataset;

struct NetImpl : torch::nn::Module {
  NetImpl(int64_t height, int64_t width)
      : conv1(register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 32, 3).padding(1)))),
        conv2(register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 64, 3).padding(1)))),
        norm1(register_module("norm1", torch::nn::BatchNorm2d(32))),
        norm2(register_module("norm2", torch::nn::BatchNorm2d(64))),
        dropout1(register_module("dropout1", torch::nn::Dropout2d(0.25))),
        dropout2(register_module("dropout2", torch::nn::Dropout(0.5))),
        fc1(register_module("fc1", torch::nn::Linear(64 * (height / 2) * (width / 2), 128))),
        fc2(register_module("fc2", torch::nn::Linear(128, 10))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm1(conv1(x)));
    x = torch::relu(norm2(conv2(x)));
    x = dropout1(torch::max_pool2d(x, 2)).flatten(1);
    x = dropout2(torch::relu(fc1(x)));
    return torch::log_softmax(fc2(x), 1);
  }

  torch::nn::Conv2d conv1, conv2;
  torch::nn::BatchNorm2d norm1, norm2;
  torch::nn::Dropout2d dropout1;
  torch::nn::Dropout dropout2;
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(Net);

using Model = adaptdl::AdaptiveDataParallel<Net>;
using Loader = adaptdl::AdaptiveDataLoader<IdxDataset>;

void train(Model& model, torch::Device device, Loader& loader, torch::optim::Optimizer& optimizer,
           adaptdl::Accumulator& stats) {
  model->train();
  for (auto& batch : loader) {
    auto data = batch.data.to(device), target = batch.target.to(device);
    optimizer.zero_grad();
    auto loss = F::nll_loss(model(data), target);
    loss.backward();
    optimizer.step();
    stats["loss"] += loss.item<double>() * static_cast<double>(data.size(0));
    stats["samples"] += static_cast<double>(data.size(0));
    adaptdl::progress::set("loss", loss.item<double>());
  }
}

double test(Model& model, torch::Device device, Loader& loader) {
  model->eval();
  torch::NoGradGuard no_grad;
  adaptdl::Accumulator stats;
  for (auto& batch : loader) {
    auto data = batch.data.to(device), target = batch.target.to(device);
    stats["correct"] += static_cast<double>(model(data).argmax(1).eq(target).sum().item<int64_t>());
    stats["samples"] += static_cast<double>(data.size(0));
  }
  auto synchronized = stats.synchronized();
  return stats["correct"] / stats["samples"];
}

void train_digits(const programs::Options& options) {
  torch::manual_seed(options.seed);
  auto device = adaptdl::replica_device();
  IdxDataset training(options.data, "train"), testing(options.data, "t10k");
  Net net(training.images().size(2), training.images().size(3));
  net->to(device);
  auto optimizer = programs::make_optimizer(net->parameters(), options);
  torch::optim::StepLR scheduler(*optimizer, /*step_size=*/1, /*gamma=*/0.9);

  adaptdl::init_process_group();
  Model model(net, *optimizer, scheduler, {.stop_on_nan = options.stop_on_nan});
  Loader train_loader(training,
                      {.batch_size = options.batch_size, .shuffle = true, .drop_last = true, .seed = options.seed});
  Loader test_loader(testing, {.batch_size = 1000});
  programs::autoscale(train_loader, options);
  programs::Reporter reporter(options);

  for (int epoch : adaptdl::remaining_epochs_until(options.epochs)) {
    programs::Timer timer;
    adaptdl::Accumulator stats;
    train(model, device, train_loader, *optimizer, stats);
    double accuracy = test(model, device, test_loader);
    scheduler.step();
    auto synchronized = stats.synchronized();
    reporter.report(epoch, train_loader, model,
                    {{"loss", stats["loss"] / stats["samples"]},
                     {"accuracy", accuracy},
                     {"samples", static_cast<int64_t>(stats["samples"])},
                     {"seconds", timer.seconds()}});
  }
  adaptdl::destroy_process_group();
}

int main(int argc, char** argv) {
  return programs::run_main(
      argc, argv, {.data = programs::sample_data("digits"), .epochs = 20, .batch_size = 32, .optimizer = "adadelta"},
      train_digits);
}
