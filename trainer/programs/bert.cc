// Trains a language model to fill in masked words. This is the pre-training of BERT (Devlin et al., 2018,
// https://arxiv.org/abs/1810.04805) at any size, with a vocabulary of whole words.
#include <adaptdl/error.h>
#include <adaptdl/torch.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include "text.h"
#include "training.h"

namespace nn = torch::nn;

enum Reserved : int64_t { kUnknown, kMask, kReserved };
constexpr int64_t kIgnored = -100;  // target of a word that was not selected for prediction

struct BertOptions {
  std::string vocabulary;
  int64_t layers = 2, hidden = 64, heads = 2, max_length = 32;
  double warmup = 50;  // steps at the initial batch size
  double dropout = 0.1;
  std::string amp = "off";
};

// Windows of the text, each with `length` words. The model must predict 15% of the words. Of these, 80% are masked, 10%
// are replaced by a random word, and 10% are left unchanged. The words are drawn again in each pass.
class MaskedText {
 public:
  MaskedText(torch::Tensor words, int64_t length, int64_t vocabulary)
      : words_(words.slice(0, 0, words.size(0) / length * length).view({-1, length})), vocabulary_(vocabulary) {}

  // Returns data, target: int64 [batch, length].
  torch::data::Example<> get_batch(c10::ArrayRef<std::size_t> indices) const {
    std::vector<torch::Tensor> data, target;
    for (const auto index : indices) {
      const auto words = words_[static_cast<int64_t>(index)];
      auto generator = adaptdl::sample_generator(index);
      auto wanted = torch::rand(words.sizes(), generator) < 0.15;
      wanted[static_cast<int64_t>(index) % words.size(0)] = true;  // without a selected word, there is no loss
      const auto change = torch::rand(words.sizes(), generator);
      const auto any = torch::randint(kReserved, vocabulary_, words.sizes(), generator, torch::kLong);
      auto seen = torch::where(wanted & (change < 0.8), torch::full_like(words, kMask), words);
      data.push_back(torch::where(wanted & (change >= 0.9), any, seen));
      target.push_back(torch::where(wanted, words, torch::full_like(words, kIgnored)));
    }
    return {torch::stack(data), torch::stack(target)};
  }
  std::size_t size() const { return static_cast<std::size_t>(words_.size(0)); }

 private:
  torch::Tensor words_;
  int64_t vocabulary_;
};

struct BertImpl : nn::Module {
  BertImpl(int64_t vocabulary, const BertOptions& own)
      : words(register_module("words", nn::Embedding(vocabulary, own.hidden))),
        places(register_module("places", nn::Embedding(own.max_length, own.hidden))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({own.hidden})))),
        encoder(register_module("encoder", nn::TransformerEncoder(nn::TransformerEncoderOptions(
                                               nn::TransformerEncoderLayerOptions(own.hidden, own.heads)
                                                   .dim_feedforward(4 * own.hidden)
                                                   .dropout(own.dropout)
                                                   .activation(torch::kGELU),
                                               own.layers)))),
        head(register_module(
            "head",
            nn::Sequential(nn::Linear(own.hidden, own.hidden), nn::GELU(), nn::Functional(to_float),
                           nn::LayerNorm(nn::LayerNormOptions({own.hidden})), nn::Linear(own.hidden, vocabulary)))) {
    for (auto& embedding : {words, places}) nn::init::normal_(embedding->weight, 0, 0.02);
  }

  // `text`: int64 [batch, length]. Returns the logits of each word, [batch, length, vocabulary].
  torch::Tensor forward(const torch::Tensor& text) {
    const auto place = torch::arange(text.size(1), text.options());
    const auto x = norm(words(text) + places(place));
    return head->forward(encoder(x.transpose(0, 1)).transpose(0, 1));
  }

  // Converts the type for the normalization, which does not support mixed types under Autocast on all devices.
  static torch::Tensor to_float(const torch::Tensor& x) { return x.to(torch::kFloat); }

  nn::Embedding words, places;
  nn::LayerNorm norm;
  nn::TransformerEncoder encoder;
  nn::Sequential head;
};
TORCH_MODULE(Bert);

using Model = adaptdl::AdaptiveDataParallel<Bert>;
using Loader = adaptdl::AdaptiveDataLoader<MaskedText>;

// Returns the mean loss over the words in `batch` that must be predicted.
torch::Tensor loss_of(Model& model, torch::Device device, const torch::data::Example<>& batch) {
  return nn::functional::cross_entropy(model(batch.data.to(device)).flatten(0, 1), batch.target.to(device).flatten(),
                                       nn::functional::CrossEntropyFuncOptions().ignore_index(kIgnored));
}

double test(Model& model, torch::Device device, Loader& loader) {
  model->eval();
  torch::NoGradGuard no_grad;
  adaptdl::Accumulator stats;
  for (auto& batch : loader) {
    const auto samples = static_cast<double>(batch.data.size(0));
    stats += {{"loss", loss_of(model, device, batch).item<double>() * samples}, {"samples", samples}};
  }
  auto synchronized = stats.synchronized();
  return stats["loss"] / stats["samples"];
}

void train_bert(const programs::Options& options, const BertOptions& own) {
  if (own.hidden % own.heads != 0)
    throw adaptdl::UsageError(fmt::format("--hidden {} must be a multiple of --heads {}", own.hidden, own.heads));
  torch::manual_seed(options.seed);
  const auto device = adaptdl::replica_device();
  const auto text = programs::read_tokens(options.data, programs::TextLevel::kWord);
  const std::vector<std::string> reserved = {"[UNK]", "[MASK]"};
  const auto vocabulary = own.vocabulary.empty() ? programs::Vocabulary::of(text, reserved, 30000)
                                                 : programs::Vocabulary::read(own.vocabulary, "--vocab", reserved);
  const auto words = vocabulary.ids(text);
  const auto split = words.size(0) * 9 / 10;
  Bert net(vocabulary.size(), own);
  net->to(device);
  auto optimizer = programs::make_optimizer(net->parameters(), options, {.weight_decay = 0.01});

  adaptdl::init_process_group();
  adaptdl::LinearWarmup warmup(*optimizer, {.steps = own.warmup});
  Model model(net, *optimizer, warmup, {.stop_on_nan = options.stop_on_nan});
  Loader loader(MaskedText(words.slice(0, 0, split), own.max_length, vocabulary.size()),
                {.batch_size = options.batch_size, .shuffle = true, .seed = options.seed});
  Loader test_loader(MaskedText(words.slice(0, split), own.max_length, vocabulary.size()), {.batch_size = 64});
  programs::autoscale(loader, options);
  programs::Reporter reporter(options);

  for (int epoch : adaptdl::remaining_epochs_until(options.epochs)) {
    programs::Timer timer;
    adaptdl::Accumulator stats;
    model->train();
    for (auto& batch : loader) {
      optimizer->zero_grad();
      torch::Tensor loss;
      {
        adaptdl::Autocast autocast(device.type(), torch::kBFloat16, own.amp == "bf16");
        loss = loss_of(model, device, batch);
      }
      loss.backward();
      optimizer->step();
      warmup.step_to(model.gns().progress());  // a large batch advances the warmup by several steps
      const auto samples = static_cast<double>(batch.data.size(0));
      stats += {{"loss", loss.item<double>() * samples}, {"samples", samples}};
    }
    const double test_loss = test(model, device, test_loader);
    auto synchronized = stats.synchronized();
    reporter.report(
        epoch, loader, model,
        {{"loss", stats["loss"] / stats["samples"]}, {"test_loss", test_loss}, {"seconds", timer.seconds()}});
  }
  adaptdl::destroy_process_group();
}

int main(int argc, char** argv) {
  BertOptions own;
  const auto sample = programs::sample_data("text");
  return programs::run_main(
      argc, argv,
      {.data = sample.empty() ? "" : sample + "/valley.txt",
       .epochs = 8,
       .batch_size = 16,
       .optimizer = "adamw",
       .lr = 0.002},
      [&](const programs::Options& options) { train_bert(options, own); },
      [&](CLI::App& app) {
        const auto add = [&](const char* name, int64_t& value, const char* help) {
          app.add_option(name, value, help)->check(programs::positive())->capture_default_str();
        };
        app.add_option("--vocab", own.vocabulary, "File with one word per line (default: the words in the text)");
        add("--layers", own.layers, "Number of layers of the transformer");
        add("--hidden", own.hidden, "Width of the layers; a multiple of --heads");
        add("--heads", own.heads, "Number of attention heads");
        add("--max-length", own.max_length, "Number of words per window");
        app.add_option("--warmup", own.warmup,
                       "Number of warm-up steps of the learning rate, at the initial batch size")
            ->check(CLI::NonNegativeNumber)
            ->capture_default_str();
        app.add_option("--amp", own.amp, "Mixed precision for training")
            ->check(CLI::IsMember({"off", "bf16"}))
            ->capture_default_str();
      });
}
