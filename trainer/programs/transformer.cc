// A language model for words or characters: a transformer that is trained to predict the next token of a text.
#include <adaptdl/error.h>
#include <adaptdl/torch.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cmath>

#include "text.h"
#include "training.h"

namespace nn = torch::nn;
using Text = adaptdl::AdaptiveBPTTIterator;

struct TransformerOptions {
  std::string level = "word";
  std::int64_t bptt = 35, width = 64, heads = 2, hidden = 128, layers = 2;
  double dropout = 0.1;
};

struct LanguageModelImpl : nn::Module {
  LanguageModelImpl(int64_t tokens, const TransformerOptions& own)
      : scale(std::sqrt(static_cast<double>(own.width))),
        embedding(register_module("embedding", nn::Embedding(tokens, own.width))),
        encoder(register_module("encoder", nn::TransformerEncoder(nn::TransformerEncoderOptions(
                                               nn::TransformerEncoderLayerOptions(own.width, own.heads)
                                                   .dim_feedforward(own.hidden)
                                                   .dropout(own.dropout),
                                               own.layers)))),
        dropout(register_module("dropout", nn::Dropout(own.dropout))),
        decoder(register_module("decoder", nn::Linear(own.width, tokens))) {
    const auto place = torch::arange(own.bptt, torch::kFloat).unsqueeze(1);
    const auto frequency =
        torch::exp(torch::arange(0, own.width, 2, torch::kFloat) * (-std::log(1e4) / static_cast<double>(own.width)));
    const auto waves = torch::stack({torch::sin(place * frequency), torch::cos(place * frequency)}, 2);
    positions = register_buffer("positions", waves.flatten(1).slice(1, 0, own.width).unsqueeze(1));
    mask = register_buffer("mask", torch::full({own.bptt, own.bptt}, -INFINITY).triu(1));  // hides later tokens
    nn::init::uniform_(embedding->weight, -0.1, 0.1);
  }

  // `text`: int64 [length, batch]. Returns the logits of the next token, [length, batch, tokens].
  torch::Tensor forward(const torch::Tensor& text) {
    const auto length = text.size(0);
    const auto x = dropout(embedding(text) * scale + positions.slice(0, 0, length));
    return decoder(encoder(x, mask.slice(0, 0, length).slice(1, 0, length)));
  }

  double scale;
  nn::Embedding embedding;
  nn::TransformerEncoder encoder;
  nn::Dropout dropout;
  nn::Linear decoder;
  torch::Tensor positions, mask;
};
TORCH_MODULE(LanguageModel);

using Model = adaptdl::AdaptiveDataParallel<LanguageModel>;

// Makes one pass over the text, and trains if there is an optimizer. Returns the loss per token, which is the logarithm
// of the perplexity.
double pass(Model& model, torch::Device device, Text& text, torch::optim::Optimizer* optimizer) {
  model->train(optimizer != nullptr);
  torch::AutoGradMode gradients(optimizer != nullptr);
  adaptdl::Accumulator stats;
  for (auto& batch : text) {
    const auto target = batch.target.to(device).flatten();
    auto loss = torch::nn::functional::cross_entropy(model(batch.text.to(device)).flatten(0, 1), target);
    if (optimizer) {
      optimizer->zero_grad();
      loss.backward();
      optimizer->step();
    }
    const auto tokens = target.ne(Text::kIgnored).sum().item<double>();
    stats["loss"] += loss.item<double>() * tokens;
    stats["tokens"] += tokens;
  }
  auto synchronized = stats.synchronized();
  return stats["loss"] / stats["tokens"];
}

void train_transformer(const programs::Options& options, const TransformerOptions& own) {
  if (own.width % own.heads != 0)
    throw adaptdl::UsageError(fmt::format("--width {} must be a multiple of --heads {}", own.width, own.heads));
  torch::manual_seed(options.seed);
  const auto device = adaptdl::replica_device();
  const auto tokens = programs::read_tokens(
      options.data, own.level == "word" ? programs::TextLevel::kWord : programs::TextLevel::kCharacter);
  const auto vocabulary = programs::Vocabulary::of(tokens, {"<unk>"}, 20000);
  const auto ids = vocabulary.ids(tokens);
  const auto held_out = std::max<int64_t>(ids.size(0) / 10, 2);
  LanguageModel net(vocabulary.size(), own);
  net->to(device);
  auto optimizer = programs::make_optimizer(net->parameters(), options);
  adaptdl::CosineAnnealingLR scheduler(*optimizer, options.epochs);

  adaptdl::init_process_group();
  Model model(net, *optimizer, scheduler, {.stop_on_nan = options.stop_on_nan});
  Text training(ids.slice(0, 0, -held_out), {.batch_size = options.batch_size, .bptt_len = own.bptt});
  Text testing(ids.slice(0, -held_out), {.batch_size = 16, .bptt_len = own.bptt});
  programs::autoscale(training, options);
  programs::Reporter reporter(options);

  for (int epoch : adaptdl::remaining_epochs_until(options.epochs)) {
    programs::Timer timer;
    const double loss = pass(model, device, training, optimizer.get());
    const double test_loss = pass(model, device, testing, nullptr);
    scheduler.step();
    reporter.report(
        epoch, training, model,
        {{"loss", loss}, {"test_loss", test_loss}, {"perplexity", std::exp(test_loss)}, {"seconds", timer.seconds()}});
  }
  adaptdl::destroy_process_group();
}

int main(int argc, char** argv) {
  TransformerOptions own;
  const auto sample = programs::sample_data("text");
  return programs::run_main(
      argc, argv,
      {.data = sample.empty() ? "" : sample + "/valley.txt",
       .epochs = 8,
       .batch_size = 20,
       .optimizer = "adam",
       .lr = 0.003},
      [&](const programs::Options& options) { train_transformer(options, own); },
      [&](CLI::App& app) {
        app.add_option("--level", own.level, "Unit of text to use as a token")
            ->check(CLI::IsMember({"word", "char"}))
            ->capture_default_str();
        const auto add = [&](const char* name, int64_t& value, const char* help) {
          app.add_option(name, value, help)->check(programs::positive())->capture_default_str();
        };
        add("--bptt", own.bptt, "Number of tokens to predict at a time");
        add("--width", own.width, "Width of an embedding; a multiple of --heads");
        add("--heads", own.heads, "Number of attention heads");
        add("--hidden", own.hidden, "Width of the feed-forward layers");
        add("--layers", own.layers, "Number of layers of the transformer");
      });
}
