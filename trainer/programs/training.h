// The common parts of the programs' training loops: the optimizer, the adaptive batch size, and the report for each
// epoch.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "adaptdl/env.h"
#include "adaptdl/torch/data_loader_helper.h"
#include "adaptdl/torch/summary_writer.h"
#include "options.h"

namespace programs {

// An optimizer's settings besides the learning rate. Settings that an optimizer does not have are ignored.
struct OptimizerSettings {
  double momentum = 0;                              // SGD
  double weight_decay = 0;                          // all
  std::tuple<double, double> betas = {0.9, 0.999};  // Adam, AdamW
};

// Creates the optimizer selected by --optimizer, with the learning rate from --lr. Its steps follow the scaling rule of
// the AdaptiveDataParallel to which it is given.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::vector<at::Tensor> parameters, const Options& options,
                                                        const OptimizerSettings& settings = {});

// If --autoscale-bsz is given, lets the loader choose the batch size within the bounds in the options.
template <class Loader>
void autoscale(Loader& loader, const Options& options) {
  if (!options.autoscale_bsz) return;
  loader.autoscale_batch_size(options.max_batch_size, {options.min_local_bsz, options.max_local_bsz},
                              options.gradient_accumulation);
}

// Measures the time since the object was created.
class Timer {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Reports the end of an epoch to the log and, if enabled, to TensorBoard.
class Reporter {
 public:
  // Must be created after init_process_group.
  explicit Reporter(const Options& options);

  // Reports `fields`, the batch size and the model's statistics. All replicas must call it, after the last loop over
  // data.
  template <class Loader, class Model>
  void report(int epoch, Loader& loader, const Model& model, const nlohmann::ordered_json& fields) {
    auto& helper = loader.helper();
    log(epoch, helper.current_batch_size(), fields, model.gain(), model.gns().progress());
    if (!writer_) return;
    loader.to_tensorboard(*writer_, epoch, "Data");
    model.to_tensorboard(*writer_, epoch, "Model");
  }

 private:
  void log(int epoch, std::size_t batch_size, const nlohmann::ordered_json& fields, double gain, double progress);

  const Options& options_;
  std::unique_ptr<adaptdl::SummaryWriter> writer_;
};

}  // namespace programs
