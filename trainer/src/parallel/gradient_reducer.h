// Averages a model's gradients across the replicas with c10d::Reducer, in buckets whose order is part of the
// checkpoint.
//
// Threading: only the training thread may use the class.
#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "adaptdl/torch/parallel.h"
#include "support/torch_compat.h"

namespace adaptdl::internal {

class GradientReducer {
 public:
  using Names = std::unordered_map<std::size_t, std::string>;

  // `state`: the name of the model's checkpoint state, for error messages. `names`: the parameters' names by index.
  // Throws UsageError if an option is invalid.
  GradientReducer(std::string state, const torch::nn::Module& model, std::vector<at::Tensor> params, Names names,
                  const DataParallelOptions& options);

  // Throws UsageError if the backend cannot sum the gradients. This is a collective call.
  void check_backend() const;
  // connect() prepares the reduction in the current process group, and disconnect() releases it. before_forward(),
  // after_forward() and update_buckets() REQUIRE that the reduction is prepared.
  void connect();
  void disconnect() { reduction_ = {}; }

  // Must be called before and after each forward pass whose gradients are averaged. `outputs`: the tensors from which
  // the loss is computed; only the search for unused parameters inspects them. Throw UsageError if the previous pass
  // left parameters without a gradient.
  void before_forward();
  void after_forward(const std::vector<at::Tensor>& outputs);

  // LibTorch rebuilds the buckets before the second step, in the order in which gradients arrived. This function
  // rebuilds them earlier, so that buckets() contains the order of the next step.
  void update_buckets();
  const compat::Buckets& buckets() const noexcept { return buckets_; }
  // Sets the buckets that connect() uses; if `buckets` is empty, it uses LibTorch's initial buckets.
  void set_buckets(compat::Buckets buckets) { buckets_ = std::move(buckets); }

  // Throws the UsageError for parameters that received no gradient in a backward pass.
  [[noreturn]] void fail_unused(const std::vector<std::size_t>& params) const;

 private:
  [[noreturn]] void fail_unused(const std::string& which) const;
  void call(const std::function<void(c10d::Reducer&)>& function) const;

  const std::string state_;
  const std::vector<at::Tensor> params_;  // in the order of registration
  const Names names_;
  const compat::ReducerOptions options_;
  compat::Buckets buckets_;
  compat::Reduction reduction_;
};

}  // namespace adaptdl::internal
