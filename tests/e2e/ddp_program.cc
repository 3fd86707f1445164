// One replica of a job that answers questions: each line of standard input is a JSON object, and each gets a line of
// standard output. All replicas are asked the same questions. The counterpart with Python's DistributedDataParallel is
// python_ddp_peer.py; python_ddp_test.py and bench/ddp_step.py compare the two.
//
// "what" is one of
//   config  -> how LibTorch was built
//   make    case, see python_ddp_test.py -> the number of the model's parameters
//   train   steps -> {losses: of each backward pass, seconds: of each step}
//   state   -> the model's parameters and buffers by name
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "adaptdl/env.h"
#include "adaptdl/torch/amp.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "adaptdl/torch/sync_batch_norm.h"
#include "answer_lines.h"

namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using nlohmann::json;
using Clock = std::chrono::steady_clock;
using Sizes = std::vector<std::int64_t>;

constexpr std::int64_t kBatches = 5;  // the steps repeat these batches
constexpr std::int64_t kClasses = 10;

// Returns numbers between -1 and 1 that are computed from integers, so that they are the same in both languages.
at::Tensor values(std::int64_t first, at::IntArrayRef shape) {
  const auto places = at::arange(first, first + c10::multiply_integers(shape), at::kLong);
  return (places * places * 7919).remainder(10007).to(at::kDouble).div(5003).sub(1).view(shape);
}

nn::Sequential make_model(const json& one) {
  const bool normalizes = one.at("sync_batch_norm");
  nn::Sequential net;
  std::int64_t in = 3, side = one.at("side");
  for (const auto out : one.at("channels").get<Sizes>()) {
    net->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(!normalizes)));
    if (normalizes) net->push_back(adaptdl::SyncBatchNorm(out));
    net->push_back(nn::ReLU());
    net->push_back(nn::MaxPool2d(2));
    in = out;
    side /= 2;
  }
  net->push_back(nn::Flatten());
  in *= side * side;
  for (const auto out : one.at("widths").get<Sizes>()) {
    net->push_back(nn::Linear(in, out));
    net->push_back(nn::ReLU());
    in = out;
  }
  net->push_back(nn::Linear(in, kClasses));

  const torch::NoGradGuard no_grad;
  std::int64_t first = 0;
  for (auto& entry : net->named_parameters()) {
    at::Tensor& param = entry.value();
    if (param.dim() > 1) {
      const auto fan_in = static_cast<double>(param[0].numel());
      param.copy_(values(first, param.sizes()) * std::sqrt(6 / fan_in));
    }
    if (entry.key().ends_with("bias")) param.zero_();
    first += param.numel();
  }
  if (one.at("double")) net->to(at::kDouble);
  return net;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const json& one, const std::vector<at::Tensor>& params) {
  const auto options = optim::SGDOptions(one.at("lr").get<double>()).momentum(0.9).weight_decay(1e-4);
  if (one.at("adaptive")) return std::make_unique<adaptdl::Adaptive<optim::SGD>>(params, options);
  return std::make_unique<optim::SGD>(params, options);
}

class Training {
 public:
  explicit Training(const json& one)
      : passes_(one.at("passes")),
        clip_(one.at("clip")),
        bf16_(one.at("bf16")),
        net_(make_model(one)),
        optimizer_(make_optimizer(one, net_->parameters())),
        model_(net_, *optimizer_, {.name = one.at("name")}) {
    const std::int64_t samples = one.at("samples"), side = one.at("side"), rank = adaptdl::env::replica_rank();
    const Sizes shape{kBatches, passes_, samples, 3, side, side};
    images_ = values((rank + 1) * c10::multiply_integers(shape), shape)
                  .to(at::kFloat)
                  .to(net_->parameters()[0].scalar_type());
    labels_ = at::arange(kBatches * passes_ * samples).add(3 * rank).remainder(kClasses).view({kBatches, passes_, -1});
  }

  json train(int steps) {
    json losses = json::array(), seconds = json::array();
    for (int i = 0; i < steps; ++i) {
      const auto began = Clock::now();
      const auto of_passes = step();
      seconds.push_back(std::chrono::duration<double>(Clock::now() - began).count());
      for (const auto& loss : of_passes) losses.push_back(loss.item<double>());
    }
    return {{"losses", losses}, {"seconds", seconds}};
  }

  json state() const {
    json result;
    const auto add = [&](const auto& tensors) {
      for (const auto& entry : tensors) {
        const at::Tensor flat = entry.value().detach().to(at::kDouble).flatten();
        result[entry.key()] = std::vector<double>(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
      }
    };
    add(net_->named_parameters());
    add(net_->named_buffers());
    return result;
  }

  std::size_t size() const {
    std::size_t result = 0;
    for (const auto& param : net_->parameters()) result += static_cast<std::size_t>(param.numel());
    return result;
  }

 private:
  std::vector<at::Tensor> step() {
    const auto batch = steps_++ % kBatches;
    adaptdl::internal::clear_gradients(*optimizer_);
    std::vector<at::Tensor> losses;
    for (std::int64_t pass = 0; pass < passes_; ++pass) {
      std::optional<decltype(model_)::NoSync> no_sync;
      if (pass + 1 < passes_) no_sync.emplace(model_.no_sync());
      {
        const adaptdl::Autocast autocast(at::kCPU, at::kBFloat16, bf16_);
        losses.push_back(at::cross_entropy_loss(model_(images_[batch][pass]), labels_[batch][pass]));
      }
      (losses.back() / passes_).backward();
    }
    if (clip_ > 0) nn::utils::clip_grad_norm_(net_->parameters(), clip_);
    optimizer_->step();
    return losses;
  }

  const std::int64_t passes_;
  const double clip_;
  const bool bf16_;
  nn::Sequential net_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  adaptdl::AdaptiveDataParallel<nn::Sequential> model_;
  at::Tensor images_, labels_;
  std::int64_t steps_ = 0;
};

json answer_to(const json& question, std::optional<Training>& training) {
  const std::string what = question.at("what");
  if (what == "config") return at::show_config();
  if (what == "make") {
    training.reset();
    return training.emplace(question.at("case")).size();
  }
  if (what == "train") return training.value().train(question.at("steps"));
  if (what == "state") return training.value().state();
  throw std::runtime_error("unknown question '" + what + "'");
}

}  // namespace

int main() {
  at::set_num_threads(1);
  adaptdl::init_process_group("gloo");
  std::optional<Training> training;
  const int code = answer_lines("ddp_program", [&](const json& question) { return answer_to(question, training); });
  training.reset();
  if (code == 0) adaptdl::destroy_process_group();
  return code;
}
