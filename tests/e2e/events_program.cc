// Writes TensorBoard logs: events_program all DIRECTORY, or events_program steps DIRECTORY FIRST LAST [PURGE].
#include <ATen/record_function.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "adaptdl/torch/summary_writer.h"

namespace {

using adaptdl::SummaryWriter;

struct Net : torch::nn::Module {
  Net() {
    register_module("hidden", hidden);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x) { return last(torch::relu(hidden->forward(x))); }
  torch::nn::Sequential hidden{torch::nn::Linear(4, 8), torch::nn::LayerNorm(torch::nn::LayerNormOptions({8}))};
  torch::nn::Linear last{8, 2};
};

// Logs the graph of a model, and the trace of a step.
void log_model(SummaryWriter& writer) {
  auto net = std::make_shared<Net>();
  const auto input = torch::ones({3, 4});
  writer.add_graph(net, input);
  const auto trace = writer.profile(5);
  RECORD_USER_SCOPE("forward");
  net->forward(input).sum().backward();
}

// Logs data of every kind.
void log_all(SummaryWriter& writer) {
  for (int step = 0; step < 10; ++step) writer.add_scalar("loss/train", 1.0 / (step + 1), 100 * step);
  writer.add_scalar("odd", std::nan(""), 1);
  writer.add_scalar("odd", std::numeric_limits<double>::infinity(), 2);
  writer.add_scalar("odd", -1.5, std::int64_t{1} << 40);
  writer.add_histogram("weights", torch::arange(-500, 500, torch::kFloat) / 100, 3);
  writer.add_histogram("weights", std::vector<double>{}, 4);
  writer.add_text("notes", "a *Markdown* text, gr\xc3\xbc\xc3\x9f", 5);
  writer.add_text("notes", "not \xff UTF-8", 6);
  const auto ramp = torch::arange(6, torch::kFloat) / 5;
  writer.add_image("image", torch::stack({ramp.view({2, 3}), torch::ones({2, 3}), torch::zeros({2, 3})}), 7);
  writer.add_images("images", torch::arange(9, torch::kByte).view({9, 1, 1, 1}).expand({9, 1, 2, 3}), 7);
  writer.add_scalars("loss/both", {{"train", 0.5}, {"test", 0.75}}, 8);
  const auto labels = torch::tensor({0, 0, 1, 1}), predictions = torch::tensor({0.1, 0.6, 0.4, 1.0});
  writer.add_pr_curve("pr", labels, predictions, 9, 3);
  writer.add_pr_curve("pr/many", labels, predictions, 9, 1000);
  writer.add_hparams({{"lr", 0.1}, {"layers", std::int64_t{3}}, {"nesterov", true}, {"optimizer", std::string("SGD")}},
                     {{"hparam/accuracy", 0.75}}, 900);
  log_model(writer);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.at(0) == "all") {
    SummaryWriter writer(arguments.at(1));
    log_all(writer);
    return 0;
  }
  adaptdl::SummaryWriterOptions options{.flush_every = std::chrono::milliseconds(0)};
  if (arguments.size() > 4) options.purge_step = std::stoll(arguments[4]);
  SummaryWriter writer(arguments.at(1), options);
  for (auto step = std::stoll(arguments.at(2)); step <= std::stoll(arguments.at(3)); ++step) {
    writer.add_scalar("step", static_cast<double>(step), step);
    writer.add_text("note", "step " + std::to_string(step), step);
  }
  // The test kills the process here; the alarm ends it if the test has given up.
  std::puts("logged");
  std::fflush(stdout);
  alarm(300);
  pause();
}
