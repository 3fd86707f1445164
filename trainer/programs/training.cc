#include "training.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "adaptdl/error.h"
#include "adaptdl/report.h"
#include "adaptdl/torch/adadelta.h"
#include "adaptdl/torch/scaling_rules.h"

namespace programs {

namespace {

using adaptdl::Adaptive;
using Parameters = std::vector<at::Tensor>;

template <class Optimizer, class OptimizerOptions>
std::unique_ptr<torch::optim::Optimizer> adam(Parameters parameters, double lr, const OptimizerSettings& settings) {
  return std::make_unique<Adaptive<Optimizer>>(
      std::move(parameters), OptimizerOptions(lr).weight_decay(settings.weight_decay).betas(settings.betas));
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> make_optimizer(Parameters parameters, const Options& options,
                                                        const OptimizerSettings& settings) {
  const auto& name = options.optimizer;
  if (name == "sgd") {
    return std::make_unique<Adaptive<torch::optim::SGD>>(
        std::move(parameters),
        torch::optim::SGDOptions(options.lr).momentum(settings.momentum).weight_decay(settings.weight_decay));
  }
  if (name == "adam")
    return adam<torch::optim::Adam, torch::optim::AdamOptions>(std::move(parameters), options.lr, settings);
  if (name == "adamw")
    return adam<torch::optim::AdamW, torch::optim::AdamWOptions>(std::move(parameters), options.lr, settings);
  if (name == "adadelta") {
    return std::make_unique<Adaptive<adaptdl::Adadelta>>(
        std::move(parameters), adaptdl::AdadeltaOptions(options.lr).weight_decay(settings.weight_decay));
  }
  throw adaptdl::UsageError(fmt::format("unknown --optimizer '{}'", name));
}

Reporter::Reporter(const Options& options) : options_(options) {
  if (options.tensorboard) writer_ = std::make_unique<adaptdl::SummaryWriter>(*adaptdl::tensorboard_directory());
}

void Reporter::log(int epoch, std::size_t batch_size, const nlohmann::ordered_json& fields, double gain,
                   double progress) {
  nlohmann::ordered_json all = {
      {"epoch", epoch}, {"replicas", adaptdl::env::num_replicas()}, {"batch_size", batch_size}};
  all.update(fields);
  all.update({{"gain", gain}, {"progress", progress}, {"elapsed", elapsed()}});
  log_epoch(options_, all);
  for (const auto& [name, value] : fields.items())
    if (value.is_number_float() && name != "seconds") adaptdl::report(name, value.get<double>());
  if (!writer_) return;
  for (const auto& [name, value] : fields.items()) writer_->add_scalar("Epoch/" + name, value.get<double>(), epoch);
}

}  // namespace programs
