// A job that trains until it is stopped, and records when each of its steps was completed.
//
//   rescale_pause_program digits|large FILE [MS]
//
// For each step, every replica appends a line to FILE: the time in ns of CLOCK_MONOTONIC, its process ID, its rank and
// the number of replicas. With MS, a step takes at least MS/n milliseconds on n replicas, as if each had its own
// device. digits is the net of programs/digits.cc; large is a net with 25 M parameters. Both train on noise in the
// shape of the digits with SGD and momentum, which doubles the state that a new replica receives.
#include <adaptdl/torch.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "adaptdl/env.h"
#include "adaptdl/error.h"

namespace {

namespace nn = torch::nn;

constexpr std::int64_t kSamples = 1500;
constexpr std::int64_t kBatchSize = 32;
constexpr std::int64_t kSide = 8;
constexpr std::int64_t kClasses = 10;
constexpr std::int64_t kWidth = 3500;

nn::Sequential make_digits() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 32, 3).padding(1)), nn::BatchNorm2d(32), nn::ReLU(),
                        nn::Conv2d(nn::Conv2dOptions(32, 64, 3).padding(1)), nn::BatchNorm2d(64), nn::ReLU(),
                        nn::MaxPool2d(2), nn::Dropout2d(0.25), nn::Flatten(), nn::Linear(kSide * kSide * 16, 128),
                        nn::ReLU(), nn::Dropout(0.5), nn::Linear(128, kClasses));
}

nn::Sequential make_large() {
  return nn::Sequential(nn::Flatten(), nn::Linear(kSide * kSide, kWidth), nn::ReLU(), nn::Linear(kWidth, kWidth),
                        nn::ReLU(), nn::Linear(kWidth, kWidth), nn::ReLU(), nn::Linear(kWidth, kClasses));
}

nn::Sequential make_model(const std::string& name) {
  if (name == "digits") return make_digits();
  if (name == "large") return make_large();
  throw adaptdl::UsageError(fmt::format("unknown model '{}': expected digits or large", name));
}

class Noise {
 public:
  torch::data::Example<> get_batch(c10::ArrayRef<std::size_t> indices) const {
    const auto rows = at::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()));
    return {images_.index_select(0, rows), labels_.index_select(0, rows).to(at::kLong)};
  }
  std::size_t size() const { return kSamples; }

 private:
  at::Tensor images_ = torch::randn({kSamples, 1, kSide, kSide});
  at::Tensor labels_ = torch::randint(kClasses, {kSamples});
};

// Writes each line with a single call, so that the lines of several replicas do not mix.
class Stamps {
 public:
  explicit Stamps(const std::string& path)
      : path_(path), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
    if (fd_ < 0) throw adaptdl::Error("cannot write " + path);
  }
  ~Stamps() { close(fd_); }
  Stamps(const Stamps&) = delete;
  Stamps& operator=(const Stamps&) = delete;

  void add() const {
    const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
    const auto line =
        fmt::format("{} {} {} {}\n", now.count(), getpid(), adaptdl::env::replica_rank(), adaptdl::env::num_replicas());
    if (write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      throw adaptdl::Error("cannot write " + path_);
  }

 private:
  std::string path_;
  int fd_;
};

void train(const std::string& name, const std::string& path, std::chrono::milliseconds step) {
  torch::manual_seed(1);
  const Stamps stamps(path);
  auto net = make_model(name);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(1e-3).momentum(0.9));
  adaptdl::init_process_group("gloo");
  adaptdl::AdaptiveDataParallel model(net, optimizer);
  adaptdl::AdaptiveDataLoader loader(Noise(), {.batch_size = kBatchSize, .shuffle = true, .drop_last = true});
  for (int epoch : adaptdl::remaining_epochs_until(std::numeric_limits<int>::max())) {
    static_cast<void>(epoch);
    for (auto& batch : loader) {
      auto loss = at::cross_entropy_loss(model(batch.data), batch.target);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      std::this_thread::sleep_for(step / adaptdl::env::num_replicas());
      stamps.add();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3 && argc != 4) throw adaptdl::UsageError("usage: rescale_pause_program digits|large FILE [MS]");
    train(argv[1], argv[2], std::chrono::milliseconds(argc == 4 ? std::stoi(argv[3]) : 0));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
