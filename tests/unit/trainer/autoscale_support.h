// Shared by the tests of the adaptive batch size: progress without a model.
#pragma once

#include "adaptdl/metrics.h"
#include "adaptdl/torch/data_loader_helper.h"

namespace autoscale_support {

namespace metrics = adaptdl::metrics;
using adaptdl::AdaptiveDataLoaderHelper;

// Replaces the model: each optimizer step is one iteration of progress.
class Progress {
 public:
  void step(const AdaptiveDataLoaderHelper& helper, double iterations = 1) {
    if (helper.is_optim_step()) metrics::set_progress("model", total_ += iterations);
  }
  double total() const { return total_; }

 private:
  double total_ = 0;
};

}  // namespace autoscale_support
