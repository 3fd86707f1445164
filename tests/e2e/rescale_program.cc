// A small training job that requests different numbers of replicas at given steps, and records which samples it trained
// on.
//
//   rescale_program --epochs N [--until FILE] [--at STEP:REPLICAS,...] [--restart] [--samples FILE] [--step-time MS]
//   [--lr RATE] [--slow-load FILE] [--slow-save FILE] [--evaluate STEPS --evaluations FILE] [--stray] [--large-part]
//
// At each STEP (counted across all epochs, from 0) rank 0 prints "resize REPLICAS at STEP" and waits until the next
// generation is announced; with --restart it requests a stop instead, so that the next start can have as many replicas.
// Either way, the replicas change at the same step boundary. --step-time: a step takes MS/n on n replicas, as if each
// had its own device. --until: the epoch in which FILE appears is the last one. --slow-load: in the middle of loading
// its states, a new replica appends its process ID to FILE and waits until FILE.go exists. --slow-save: likewise for
// the replica that saves the result. --evaluate: every STEPS steps, the replicas iterate over the samples within the
// training loop, after waiting in the same way for the file of --evaluations. --stray: one replica makes a collective
// call that the others do not make. --large-part: adds a state whose parts are too large for a collective call. At the
// end, all replicas must have bitwise equal parameters.
#include <adaptdl/generation.h>
#include <adaptdl/torch.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/collective.h"
#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "adaptdl/progress.h"

namespace {

constexpr std::size_t kSamples = 240;
constexpr std::int64_t kBatchSize = 12;  // shared evenly among 1 to 4 replicas
constexpr std::int64_t kFeatures = 16;

struct Options {
  int epochs = 1;
  std::string until;
  std::map<std::size_t, int> at;
  bool restart = false;
  std::string samples;
  std::chrono::milliseconds step_time{0};
  double lr = 0.02;
  std::string slow_load, slow_save;
  std::int64_t evaluate = 0;
  std::string evaluations;
  bool stray = false;
  bool large_part = false;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    const std::map<std::string, bool*> flags = {
        {"--restart", &options.restart}, {"--stray", &options.stray}, {"--large-part", &options.large_part}};
    if (const auto flag = flags.find(word); flag != flags.end()) {
      *flag->second = true;
      continue;
    }
    ++i;
    if (word == "--epochs") {
      options.epochs = std::stoi(value);
    } else if (word == "--until") {
      options.until = value;
    } else if (word == "--samples") {
      options.samples = value;
    } else if (word == "--step-time") {
      options.step_time = std::chrono::milliseconds(std::stoi(value));
    } else if (word == "--lr") {
      options.lr = std::stod(value);
    } else if (word == "--slow-load") {
      options.slow_load = value;
    } else if (word == "--slow-save") {
      options.slow_save = value;
    } else if (word == "--evaluate") {
      options.evaluate = std::stoi(value);
    } else if (word == "--evaluations") {
      options.evaluations = value;
    } else if (word == "--at") {
      std::istringstream list(value);
      for (std::string entry; std::getline(list, entry, ',');)
        options.at[std::stoul(entry)] = std::stoi(entry.substr(entry.find(':') + 1));
    } else {
      throw adaptdl::UsageError("cannot make sense of " + word);
    }
  }
  return options;
}

// Sample i has the number i after its features.
class Points : public torch::data::datasets::Dataset<Points> {
 public:
  torch::data::Example<> get(std::size_t index) override {
    const auto number = static_cast<float>(index);
    auto x = torch::sin(torch::arange(1, kFeatures + 1, torch::kFloat) * (0.37f * number + 0.1f));
    return {torch::cat({x, torch::full({1}, number)}), x.sum().unsqueeze(0)};
  }
  torch::optional<std::size_t> size() const override { return kSamples; }
};

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return second(torch::dropout(torch::relu(norm(first(x))), 0.1, is_training()));
  }
  torch::nn::Linear first{kFeatures, 32};
  torch::nn::BatchNorm1d norm{32};
  torch::nn::Linear second{32, 1};
};
TORCH_MODULE(Net);

// Writes each line with a single call, so that the lines of several replicas do not mix.
void tell_samples(const Options& options, int epoch, const torch::Tensor& data) {
  if (options.samples.empty()) return;
  std::string line = fmt::format("{} {}", getpid(), epoch);
  const auto numbers = data.select(1, kFeatures).contiguous();
  for (std::int64_t i = 0; i < numbers.size(0); ++i) line += fmt::format(" {}", numbers[i].item<float>());
  line += '\n';
  const int fd = open(options.samples.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const bool written = write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  close(fd);
  if (!written) throw adaptdl::Error("cannot write " + options.samples);
}

// Appends the process ID to the file, and waits until the test creates FILE.go.
void wait_for_go(const std::string& file) {
  std::ofstream(file, std::ios::app) << getpid() << std::endl;
  while (!std::filesystem::exists(file + ".go")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void ask_for_change(const Options& options, std::size_t step) {
  const auto change = options.at.find(step);
  if (change == options.at.end() || adaptdl::env::replica_rank() != 0) return;
  if (options.restart) {
    raise(SIGTERM);
    return;
  }
  fmt::print("resize {} at {}\n", change->second, step);
  std::fflush(stdout);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!adaptdl::generation::announced()) {
    if (std::chrono::steady_clock::now() > deadline) throw adaptdl::Error("nobody announced another generation");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void check_parameters_agree(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> flat;
  for (const auto& parameter : parameters) flat.push_back(parameter.detach().flatten());
  const auto all = torch::cat(flat).contiguous();
  const std::string bytes(static_cast<const char*>(all.data_ptr()), all.nbytes());
  for (const auto& other : adaptdl::collective::world().allgather(bytes)) {
    if (other != bytes) throw adaptdl::Error("the replicas hold different parameters");
  }
}

// A state that exceeds the buffers of a connection. A joining replica reads its second half some time after the first.
class Ballast : public adaptdl::checkpoint::State {
 public:
  explicit Ballast(std::string file) : State("~ballast"), file_(std::move(file)) {}
  void save(adaptdl::checkpoint::Writer& writer) const override {
    for (const char* half : {"first", "second"}) writer.bytes(half, std::vector<std::byte>(std::size_t{32} << 20));
  }
  void load(const adaptdl::checkpoint::Reader& reader) override {
    static_cast<void>(reader.bytes("first"));
    wait_for_go(file_);
    static_cast<void>(reader.bytes("second"));
  }

 private:
  std::string file_;
};

// A state whose save blocks once all epochs are finished.
class SlowSave : public adaptdl::checkpoint::State {
 public:
  explicit SlowSave(const Options& options) : State("~slow-save"), options_(options) {}
  void save(adaptdl::checkpoint::Writer& writer) const override {
    writer.json("nothing", nullptr);
    if (options_.slow_save.empty() || adaptdl::finished_epochs() < options_.epochs) return;
    wait_for_go(options_.slow_save);
  }
  void load(const adaptdl::checkpoint::Reader&) override {}
  bool has_parts() const override { return options_.large_part; }
  void save_part(adaptdl::checkpoint::Writer& writer) const override {
    writer.bytes("part", std::vector<std::byte>(std::size_t{40} << 20));
  }

 private:
  const Options& options_;
};

class Steps : public adaptdl::checkpoint::State {
 public:
  Steps() : State("steps") { adaptdl::checkpoint::load_state(*this); }
  void save(adaptdl::checkpoint::Writer& writer) const override { writer.json("count", count); }
  void load(const adaptdl::checkpoint::Reader& reader) override { count = reader.json("count"); }
  std::int64_t count = 0;
};

template <typename Model, typename Loader>
void evaluate(const Options& options, Model& model, Loader& loader, adaptdl::Accumulator& quality) {
  torch::NoGradGuard no_grad;
  model->eval();
  wait_for_go(options.evaluations);
  for (auto& batch : loader) {
    const auto loss = torch::mse_loss(model(batch.data.narrow(1, 0, kFeatures)), batch.target);
    quality["loss"] += loss.template item<double>() * static_cast<double>(batch.data.size(0));
    quality["samples"] += static_cast<double>(batch.data.size(0));
  }
  auto synchronized = quality.synchronized();
  if (adaptdl::env::replica_rank() == 0)
    fmt::print("evaluated on {} samples, loss {:.6f}\n", static_cast<int>(quality["samples"]),
               quality["loss"] / quality["samples"]);
  std::fflush(stdout);
  quality.clear();
  model->train();
}

void train(const Options& options) {
  torch::manual_seed(1);
  Net net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(options.lr).momentum(0.9));
  adaptdl::init_process_group("gloo");
  adaptdl::AdaptiveDataParallel model(net, optimizer);
  std::optional<Ballast> ballast;
  if (!options.slow_load.empty()) adaptdl::checkpoint::load_state(ballast.emplace(options.slow_load));
  SlowSave slow_save(options);
  adaptdl::checkpoint::load_state(slow_save);
  Steps steps;
  adaptdl::AdaptiveDataLoader test_loader(Points(), {.batch_size = kSamples / 2});
  adaptdl::Accumulator quality;
  adaptdl::AdaptiveDataLoader loader(Points(), {.batch_size = kBatchSize, .shuffle = true});
  for (int epoch : adaptdl::remaining_epochs_until(options.epochs)) {
    adaptdl::Accumulator stats;
    for (auto& batch : loader) {
      const auto step = static_cast<std::size_t>(epoch) * kSamples / kBatchSize +
                        *loader.helper().current_index() / static_cast<std::size_t>(kBatchSize);
      auto loss = torch::mse_loss(model(batch.data.narrow(1, 0, kFeatures)), batch.target);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      std::this_thread::sleep_for(options.step_time / adaptdl::env::num_replicas());
      tell_samples(options, epoch, batch.data);
      adaptdl::progress::set("loss", loss.item<double>());
      stats["loss"] += loss.item<double>() * static_cast<double>(batch.data.size(0));
      stats["samples"] += static_cast<double>(batch.data.size(0));
      ask_for_change(options, step);
      if (options.stray && step == 5 && adaptdl::env::replica_rank() == 1) adaptdl::collective::allreduce(1);
      if (options.evaluate > 0 && ++steps.count % options.evaluate == 0) evaluate(options, model, test_loader, quality);
    }
    stats["last"] += adaptdl::env::replica_rank() == 0 && std::filesystem::exists(options.until) ? 1 : 0;
    auto synchronized = stats.synchronized();
    if (adaptdl::env::replica_rank() == 0)
      fmt::print("epoch {} replicas {} loss {:.6f} samples {}\n", epoch, adaptdl::env::num_replicas(),
                 stats["loss"] / stats["samples"], static_cast<int>(stats["samples"]));
    std::fflush(stdout);
    if (stats["last"] > 0) break;
  }
  check_parameters_agree(net->parameters());
  if (!options.until.empty()) adaptdl::checkpoint::save_all_states();  // a loop that is left early does not save
  adaptdl::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    train(parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
