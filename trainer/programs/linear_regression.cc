// The shortest program: fits a linear model by least squares to generated points or to a text file.
#include <adaptdl/error.h>
#include <adaptdl/torch.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <fstream>
#include <sstream>

#include "training.h"

using torch::data::datasets::TensorDataset;

// Returns 10,000 points of y = x · (1, 2, ..., 8) + 0.5 + noise with standard deviation 0.1, as rows of x and y.
torch::Tensor generate(uint64_t seed) {
  torch::manual_seed(seed);
  auto x = torch::randn({10000, 8});
  auto y = x.mv(torch::arange(1, 9, torch::kFloat)) + 0.5 + 0.1 * torch::randn(10000);
  return torch::cat({x, y.unsqueeze(1)}, 1);
}

// Reads rows of numbers separated by spaces or commas. The last number in each row is y.
torch::Tensor read_rows(const std::string& path) {
  std::ifstream file(path);
  std::vector<torch::Tensor> rows;
  for (std::string line; std::getline(file, line);) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream text(line);
    rows.push_back(torch::tensor(std::vector<float>(std::istream_iterator<float>(text), {})));
    const bool numbers = text.eof() && rows.back().size(0) >= 2;
    if (!numbers || rows.back().size(0) != rows[0].size(0))
      throw adaptdl::Error(
          fmt::format("{}:{}: expected at least two numbers, and as many as in the first row", path, rows.size()));
  }
  if (rows.empty()) throw adaptdl::Error(fmt::format("cannot read any numbers from '{}' (--data)", path));
  return torch::stack(rows);
}

void fit(const programs::Options& options) {
  auto rows = options.data.empty() ? generate(options.seed) : read_rows(options.data);
  auto inputs = rows.size(1) - 1;
  torch::nn::Linear net(inputs, 1);
  auto optimizer = programs::make_optimizer(net->parameters(), options);

  adaptdl::init_process_group("gloo");
  adaptdl::AdaptiveDataParallel model(net, *optimizer, {.stop_on_nan = options.stop_on_nan});
  adaptdl::AdaptiveDataLoader loader(TensorDataset(rows),
                                     {.batch_size = options.batch_size, .shuffle = true, .seed = options.seed});
  programs::autoscale(loader, options);
  programs::Reporter reporter(options);

  for (int epoch : adaptdl::remaining_epochs_until(options.epochs)) {
    programs::Timer timer;
    adaptdl::Accumulator stats;
    for (auto& batch : loader) {
      auto x = batch.data.narrow(1, 0, inputs), y = batch.data.narrow(1, inputs, 1);
      torch::Tensor loss = torch::mse_loss(model(x), y);
      optimizer->zero_grad();
      loss.backward();
      optimizer->step();
      stats["loss"] += loss.item<double>() * static_cast<double>(x.size(0));
      stats["samples"] += static_cast<double>(x.size(0));
    }
    auto synchronized = stats.synchronized();
    double loss = stats["loss"] / stats["samples"], variance = rows.select(1, inputs).var().item<double>();
    reporter.report(epoch, loader, model,
                    {{"loss", loss},
                     {"accuracy", 1 - loss / variance},  // R², the fraction of the variance that is explained
                     {"samples", static_cast<int64_t>(stats["samples"])},
                     {"seconds", timer.seconds()}});
  }
  adaptdl::destroy_process_group();
}

int main(int argc, char** argv) { return programs::run_main(argc, argv, {.epochs = 5, .lr = 0.01}, fit); }
