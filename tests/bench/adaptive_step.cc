// Measures what adaptive training costs per step, compared with plain data parallelism. In one run on two local
// replicas, two identical models train in turns of a few steps each: one with an adaptive optimizer and a loader whose
// batch size is autoscaled, the other with LibTorch's optimizer and a loader of fixed batch size. Autoscaling can
// choose only one size, so that the steps are comparable, but the job still takes measurements, fits the goodput model
// and sends hints to a supervisor. A step's time is the time between two batches; the first step of each turn is not
// counted.
//
// For each workload, prints the ratio of the two models' median step times. Exits with 1 if a ratio for SGD exceeds
// 1.03; run it on an otherwise idle machine. The ratio for Adam, whose gradients are divided by its moments before they
// are measured, is printed for information only. An argument such as "SGD" or "25 M" selects the measurements whose
// names contain it. With --gpu as the first argument, one replica is measured on a GPU, with NCCL and batches of 512,
// also for information only.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <torch/cuda.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "adaptdl/env.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"

namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using Clock = std::chrono::steady_clock;

constexpr int kReplicas = 2, kGpuBatchSize = 512;
constexpr double kMaxRatio = 1.03;

struct Workload {
  const char* name;
  std::vector<std::int64_t> channels;  // channels of each 3 x 3 convolution; where they increase, the image is halved
  std::int64_t batch_size;             // across all replicas
  int turns, steps;                    // turns per model; steps per turn
};
const Workload kSmall{"1 M parameters", {64, 128, 128, 256, 256}, 32, 40, 6};
const Workload kLarge{"25 M parameters", {64, 128, 256, 512, 512, 1024, 1024, 800}, 32, 32, 4};

nn::Sequential make_model(const Workload& workload, at::Device device) {
  torch::manual_seed(1);
  nn::Sequential layers;
  std::int64_t in = 3;
  for (const auto out : workload.channels) {
    const bool halve = in != 3 && out > in;
    layers->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).stride(halve ? 2 : 1).bias(false)));
    layers->push_back(nn::BatchNorm2d(out));
    layers->push_back(nn::ReLU());
    in = out;
  }
  layers->push_back(nn::AdaptiveAvgPool2d(1));
  layers->push_back(nn::Flatten());
  layers->push_back(nn::Linear(in, 10));
  layers->to(device);
  return layers;
}

class Images {
 public:
  Images(std::int64_t size, at::Device device)
      : images_(torch::randn({size, 3, 32, 32}, device)), labels_(torch::randint(10, {size}, device)) {}
  torch::data::Example<> get_batch(c10::ArrayRef<std::size_t> indices) const {
    const auto rows = at::tensor(std::vector<std::int64_t>(indices.begin(), indices.end())).to(images_.device());
    return {images_.index_select(0, rows), labels_.index_select(0, rows).to(at::kLong)};
  }
  std::size_t size() const { return static_cast<std::size_t>(images_.size(0)); }

 private:
  at::Tensor images_, labels_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Optimizer>
struct Trainer {
  Trainer(const Workload& workload, const std::string& name, at::Device device)
      : net(make_model(workload, device)),
        optimizer(net->parameters(), 1e-3),
        model(net, optimizer, {.name = name}),
        loader(Images(workload.steps * workload.batch_size, device), {.batch_size = workload.batch_size}) {}

  // Makes one pass over the data.
  void turn() {
    Clock::time_point start;
    int step = 0;
    const auto end_step = [&] {
      if (torch::cuda::is_available()) torch::cuda::synchronize();
      const auto now = Clock::now();
      if (step++ > 1) seconds.push_back(std::chrono::duration<double>(now - start).count());
      start = now;
    };
    for (auto& batch : loader) {
      end_step();
      auto loss = at::cross_entropy_loss(model(batch.data), batch.target);
      adaptdl::internal::clear_gradients(optimizer);
      loss.backward();
      optimizer.step();
    }
    end_step();
  }

  nn::Sequential net;
  Optimizer optimizer;
  adaptdl::AdaptiveDataParallel<nn::Sequential> model;
  adaptdl::AdaptiveDataLoader<Images> loader;
  std::vector<double> seconds;  // times of all steps except the first of each turn
};

// Trains for the next `turns` epochs, and adds `turns` to `epochs`. Returns the ratio of the median step
// times.
template <class Optimizer>
double measure(const Workload& workload, const char* optimizer, int turns, int& epochs) {
  const at::Device device = adaptdl::replica_device();
  Trainer<adaptdl::Adaptive<Optimizer>> adaptive(workload, fmt::format("adaptive-{}", epochs), device);
  Trainer<Optimizer> plain(workload, fmt::format("plain-{}", epochs), device);
  adaptive.loader.autoscale_batch_size(static_cast<std::size_t>(workload.batch_size));
  epochs += turns;
  for (const int epoch : adaptdl::remaining_epochs_until(epochs)) {
    // The two models take turns going first.
    if (epoch % 2 == 0) adaptive.turn();
    plain.turn();
    if (epoch % 2 != 0) adaptive.turn();
  }
  const double ours = median(adaptive.seconds), theirs = median(plain.seconds);
  std::int64_t size = 0;
  for (const auto& param : plain.net->parameters()) size += param.numel();
  if (adaptdl::env::replica_rank() == 0) {
    fmt::print(
        "{} ({:.1f} M), {}: adaptive step / plain data-parallel step: {:.4f} ({:.2f} ms / {:.2f} ms, medians of {})\n",
        workload.name, static_cast<double>(size) / 1e6, optimizer, ours / theirs, 1e3 * ours, 1e3 * theirs,
        plain.seconds.size());
    std::fflush(stdout);
  }
  return ours / theirs;
}

int run(int rank, const std::string& supervisor, const std::string& part, bool gpu) {
  adaptdl::init_process_group(gpu ? "nccl" : "gloo");
  setenv("ADAPTDL_SUPERVISOR_URL", supervisor.c_str(), 1);
  setenv("ADAPTDL_JOB_ID", "default/adaptive-step", 1);
  int epochs = 0;
  double most = 0;
  const auto wanted = [&](const Workload& workload, const char* optimizer) {
    return fmt::format("{} {}", workload.name, optimizer).find(part) != std::string::npos;
  };
  for (auto workload : {kSmall, kLarge}) {
    if (gpu) workload.batch_size = kGpuBatchSize;
    if (wanted(workload, "SGD")) most = std::max(most, measure<optim::SGD>(workload, "SGD", workload.turns, epochs));
    if (wanted(workload, "Adam")) measure<optim::Adam>(workload, "Adam (for information)", workload.turns / 2, epochs);
  }
  adaptdl::destroy_process_group();
  return rank == 0 && !gpu && most > kMaxRatio ? 1 : 0;
}

// Returns a socket that listens on a free loopback port.
int listen_at(sockaddr_in& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd, 8) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw std::runtime_error("cannot listen on the loopback address");
  }
  return fd;
}

// Answers all hints with status 200 until all children have exited. Returns whether all of them exited with 0.
bool supervise(int fd, int children) {
  bool well = true;
  while (children > 0) {
    pollfd waiting{fd, POLLIN, 0};
    if (poll(&waiting, 1, 200) > 0) {
      const int client = accept(fd, nullptr, nullptr);
      char request[4096];
      const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
      if (recv(client, request, sizeof request, 0) > 0) send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
      close(client);
    }
    int status = 0;
    while (children > 0 && waitpid(-1, &status, WNOHANG) > 0) --children, well = well && status == 0;
  }
  return well;
}

}  // namespace

int main(int argc, char** argv) {
  sockaddr_in address;
  const int fd = listen_at(address);
  const auto supervisor = fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port));
  const bool gpu = argc > 1 && std::string(argv[1]) == "--gpu";
  const int replicas = gpu ? 1 : kReplicas;
  const char* const part = argc > 1 + gpu ? argv[1 + gpu] : "";
  if (!gpu) setenv("CUDA_VISIBLE_DEVICES", "", 1);
  setenv("ADAPTDL_NUM_REPLICAS", std::to_string(replicas).c_str(), 1);
  setenv("ADAPTDL_MASTER_ADDR", "127.0.0.1", 1);
  setenv("ADAPTDL_MASTER_PORT", std::to_string(20000 + getpid() % 10000).c_str(), 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  for (int rank = 0; rank < replicas; ++rank) {
    if (fork() != 0) continue;
    close(fd);
    setenv("ADAPTDL_REPLICA_RANK", std::to_string(rank).c_str(), 1);
    std::_Exit(run(rank, supervisor, part, gpu));
  }
  return supervise(fd, replicas) ? 0 : 1;
}
