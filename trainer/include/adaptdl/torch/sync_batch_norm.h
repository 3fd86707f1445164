// Batch normalization with the mean and variance of the whole batch, across all replicas, instead of those of each
// replica's share. It is for models that train with few samples per replica, such as object detectors.
//
//   adaptdl::SyncBatchNorm norm{register_module("norm", adaptdl::SyncBatchNorm(64))};
//
// This line replaces a `torch::nn::BatchNorm2d(64)`.
//
// Source: Ioffe and Szegedy, "Batch Normalization", ICML 2015, with statistics across all replicas. The options,
// parameters and buffers are the same as in LibTorch's batch normalization. On a single replica, in evaluation mode, or
// without a process group, the result is also the same. A forward pass costs one all-reduce of 2C + 1 numbers, and a
// backward pass one of 2C numbers.
//
// All replicas must run these modules in the same order. The gradients of each replica also depend on the samples of
// the other replicas, so the measured gradient noise is slightly too low.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/options/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <ostream>

namespace adaptdl {

class SyncBatchNormImpl : public torch::nn::NormImplBase<1, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  // `given`: the number of features C, or LibTorch's BatchNormOptions.
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& given);

  // `input` is (N, C) or (N, C, ...), with any N on each replica. Throws UsageError for any other shape, and if all
  // replicas together have only one value per feature. Throws the same collective errors as a backward pass.
  at::Tensor forward(const at::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const at::Tensor& input) override;

 private:
  void update_running(const at::Tensor& mean, const at::Tensor& unbiased_variance);
};
TORCH_MODULE(SyncBatchNorm);  // a module holder, like those of LibTorch's own modules

}  // namespace adaptdl
