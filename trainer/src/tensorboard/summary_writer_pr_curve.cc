// Computes precision-recall curves.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <vector>

#include "adaptdl/error.h"
#include "tensorboard/summary_writer_impl.h"

namespace adaptdl {

namespace {

constexpr int kMaxThresholds = 10000;
constexpr double kTolerance = 0.01;  // beyond 0 and 1; permits rounded averages of probabilities, but not logits

void require(const std::string& tag, bool condition, const std::string& what) {
  if (!condition) throw UsageError(fmt::format("invalid PR curve '{}': {}", tag, what));
}

void check_arguments(const std::string& tag, const at::Tensor& labels, const at::Tensor& predictions,
                     int num_thresholds) {
  require(tag, num_thresholds >= 2 && num_thresholds <= kMaxThresholds,
          fmt::format("num_thresholds must be between 2 and {}, got {}", kMaxThresholds, num_thresholds));
  require(tag, labels.defined() && !at::isComplexType(labels.scalar_type()), "labels must be real numbers");
  require(tag, predictions.defined() && at::isFloatingType(predictions.scalar_type()),
          "predictions must be floating-point numbers");
  require(tag, labels.numel() == predictions.numel(),
          fmt::format("expected as many labels as predictions, got {} and {}", labels.numel(), predictions.numel()));
}

// Returns the number of predictions at or above each threshold, as doubles on the CPU.
at::Tensor counts_above(const at::Tensor& predictions, int num_thresholds) {
  const auto below = (predictions * (num_thresholds - 1)).floor().clamp(0, num_thresholds - 1).to(at::kLong);
  return at::bincount(below, {}, num_thresholds).cpu().flip(0).cumsum(0).flip(0).to(at::kDouble);
}

// Returns six rows of num_thresholds numbers: true and false positives, true and false negatives, precision, recall.
std::vector<float> curve_of(const std::string& tag, const at::Tensor& labels, const at::Tensor& predictions,
                            int num_thresholds) {
  check_arguments(tag, labels, predictions, num_thresholds);
  const c10::NoGradGuard no_grad;
  // Half precision is too coarse to find the threshold below a prediction.
  const bool is_double = predictions.scalar_type() == at::kDouble;
  const auto scores = predictions.detach().to(is_double ? at::kDouble : at::kFloat).flatten();
  const auto classes = labels.detach().to(scores.device()).flatten();
  require(tag, !scores.lt(-kTolerance).logical_or(scores.gt(1 + kTolerance)).any().item<bool>(),
          "predictions must be between 0 and 1; apply sigmoid or softmax to logits");
  const auto positive = classes.eq(1);
  require(tag, positive.logical_or(classes.eq(0)).all().item<bool>(), "labels must be 0 or 1");
  const auto numbers = scores.isnan().logical_not();
  const auto tp = counts_above(scores.masked_select(positive.logical_and(numbers)), num_thresholds);
  const auto fp = counts_above(scores.masked_select(positive.logical_not().logical_and(numbers)), num_thresholds);
  const auto tn = fp[0] - fp, fn = tp[0] - tp;
  // A denominator is 0 if there is no positive prediction or no positive label.
  const auto curve =
      at::stack({tp, fp, tn, fn, tp / (tp + fp).clamp_min(1), tp / (tp + fn).clamp_min(1)}).to(at::kFloat).contiguous();
  const auto* const data = curve.data_ptr<float>();
  return {data, data + curve.numel()};
}

}  // namespace

void SummaryWriter::add_pr_curve(std::string_view tag, const at::Tensor& labels, const at::Tensor& predictions,
                                 std::int64_t step, int num_thresholds) {
  impl_->log(tag, step, [&](const std::string& name) {
    return internal::pr_curve_event(name, curve_of(name, labels, predictions, num_thresholds), step);
  });
}

}  // namespace adaptdl
