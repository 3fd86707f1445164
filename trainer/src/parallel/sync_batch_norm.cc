#include "adaptdl/torch/sync_batch_norm.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/generation.h"
#include "group/process_group.h"
#include "support/regroup.h"
#include "support/replicas.h"

namespace adaptdl {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns all dimensions of `input` except the feature dimension.
std::vector<std::int64_t> summed_dims(const at::Tensor& input) {
  std::vector<std::int64_t> dims;
  for (std::int64_t dim = 0; dim < input.dim(); ++dim) {
    if (dim != 1) dims.push_back(dim);
  }
  return dims;
}

// Reshapes `features`, one number per feature, so that it broadcasts over `input`.
at::Tensor along(const at::Tensor& features, const at::Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = -1;
  return features.view(shape);
}

at::Tensor sum_over_replicas(at::Tensor tensor) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  internal::process_group_ptr()->allreduce(tensors)->wait();
  return tensors[0];
}

struct Moments {
  at::Tensor mean, variance;  // across the replicas; the variance is biased
  double count;               // values per feature
};

// The replicas' moments are added in double precision, so that the difference of sums does not lose the moments'
// precision.
Moments moments_of(const at::Tensor& input) {
  const auto features = input.size(1);
  auto sums = at::zeros({2 * features + 1}, input.options().dtype(at::kDouble));
  if (input.numel() > 0) {
    const auto [variance, mean] = at::var_mean(input, summed_dims(input), /*unbiased=*/false);
    const auto count = static_cast<double>(input.numel() / features);
    const auto wide = mean.to(at::kDouble);
    sums.slice(0, 0, features).copy_(wide * count);
    sums.slice(0, features, 2 * features).copy_((variance.to(at::kDouble) + wide.square()) * count);
    sums[2 * features].fill_(count);
  }
  sums = sum_over_replicas(sums);
  const auto count = sums[2 * features].item<double>();
  const auto mean = sums.slice(0, 0, features) / count;
  const auto variance = (sums.slice(0, features, 2 * features) / count - mean.square()).clamp_min(0);
  return {mean.to(input.scalar_type()), variance.to(input.scalar_type()), count};
}

// Computes (input - mean) / deviation * weight + bias, with the moments of all replicas' inputs.
struct Normalize : torch::autograd::Function<Normalize> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                            double count) {
    context->save_for_backward({input, weight, mean, inverse_deviation});
    context->saved_data["count"] = count;
    return at::addcmul(along(bias - mean * inverse_deviation * weight, input), input,
                       along(inverse_deviation * weight, input));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &input = saved[0], &weight = saved[1], &mean = saved[2], &inverse_deviation = saved[3];
    const auto count = context->saved_data["count"].toDouble();
    const auto& gradient = gradients[0];
    const auto dims = summed_dims(input);
    const auto normalized = (input - along(mean, input)) * along(inverse_deviation, input);
    const auto of_bias = gradient.sum(dims), of_weight = (gradient * normalized).sum(dims);
    const auto means = sum_over_replicas(at::cat({of_bias, of_weight})) / count;
    const auto features = input.size(1);
    const auto of_input =
        (gradient - along(means.slice(0, 0, features), input) - normalized * along(means.slice(0, features), input)) *
        along(inverse_deviation * weight, input);
    return {of_input, of_weight, of_bias, {}, {}, {}};
  }
};

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& given) : NormImplBase(given) {}

void SyncBatchNormImpl::_check_input_dim(const at::Tensor& input) {
  if (input.dim() >= 2 && input.size(1) == options.num_features()) return;
  throw UsageError(fmt::format("SyncBatchNorm: invalid input of shape {}: expected (N, {}) or (N, {}, ...)",
                               c10::str(input.sizes()), options.num_features(), options.num_features()));
}

namespace {

void check_count(double count) {
  if (count > 1) return;
  throw UsageError("SyncBatchNorm: a batch with one value per feature cannot be normalized; use a larger batch size");
}

bool is_alone() { return !collective::initialized() || generation::joining() || internal::num_replicas() == 1; }

}  // namespace

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  _check_input_dim(input);
  const bool by_batch = is_training() || !running_mean.defined();
  if (!is_training() || is_alone()) {
    if (is_training()) check_count(static_cast<double>(input.numel()) / static_cast<double>(input.size(1)));
    double momentum = 0;
    if (is_training() && options.track_running_stats()) {
      num_batches_tracked += 1;
      momentum = options.momentum() ? *options.momentum() : 1.0 / num_batches_tracked.item<double>();
    }
    return at::batch_norm(input, weight, bias, running_mean, running_var, by_batch, momentum, options.eps(),
                          at::globalContext().userEnabledCuDNN());
  }
  const auto type = input.scalar_type();
  const auto wide = type == at::kHalf || type == at::kBFloat16 ? input.to(at::kFloat) : input;
  Moments moments;
  {
    torch::NoGradGuard no_grad;
    moments = moments_of(wide.detach());
    // If a replica has been lost, the sums include only some replicas. The step will then be repeated.
    if (!internal::group_is_broken()) {
      check_count(moments.count);
      if (options.track_running_stats())
        update_running(moments.mean, moments.variance * (moments.count / (moments.count - 1)));
    }
  }
  const auto affine = options.affine();
  return Normalize::apply(wide, affine ? weight : at::ones_like(moments.mean),
                          affine ? bias : at::zeros_like(moments.mean), moments.mean,
                          (moments.variance + options.eps()).rsqrt(), moments.count)
      .to(type);
}

void SyncBatchNormImpl::update_running(const at::Tensor& mean, const at::Tensor& unbiased_variance) {
  num_batches_tracked += 1;
  const double keep = 1 - (options.momentum() ? *options.momentum() : 1.0 / num_batches_tracked.item<double>());
  running_mean.mul_(keep).add_(mean, 1 - keep);
  running_var.mul_(keep).add_(unbiased_variance, 1 - keep);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "adaptdl::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", affine=" << (options.affine() ? "true" : "false")
         << ", track_running_stats=" << (options.track_running_stats() ? "true" : "false") << ')';
}

}  // namespace adaptdl
