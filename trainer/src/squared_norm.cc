#include "squared_norm.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace adaptdl::torch {

namespace {

constexpr std::int64_t kSumChunk = std::int64_t{1} << 16;  // elements that one thread sums up in one go
constexpr int kLanes = 16;                                 // partial sums, for the compiler to make vectors of

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
// Chosen when the program starts, by what the processor can do.
#define ADAPTDL_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ADAPTDL_VECTOR_CLONES
#endif

ADAPTDL_VECTOR_CLONES double sum_squares(const float* g, std::int64_t n) {
  std::array<double, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(g[i + lane] * g[i + lane]);
  }
  for (; i < n; ++i) lanes[0] += static_cast<double>(g[i] * g[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

ADAPTDL_VECTOR_CLONES double sum_squares(const float* g, const float* v, float correction, float eps, std::int64_t n) {
  std::array<double, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float quotient = g[i + lane] / (std::sqrt(v[i + lane]) / correction + eps);
      lanes[lane] += static_cast<double>(quotient * quotient);
    }
  }
  for (; i < n; ++i) {
    const float quotient = g[i] / (std::sqrt(v[i]) / correction + eps);
    lanes[0] += static_cast<double>(quotient * quotient);
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// |a|^2, |b|^2 and a·b.
ADAPTDL_VECTOR_CLONES std::array<double, 3> sum_products(const float* a, float* b, std::int64_t n) {
  std::array<double, kLanes> aa{}, bb{}, ab{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float x = a[i + lane], y = b[i + lane];
      aa[lane] += static_cast<double>(x * x);
      bb[lane] += static_cast<double>(y * y);
      ab[lane] += static_cast<double>(x) * static_cast<double>(y);
      b[i + lane] = x;
    }
  }
  for (; i < n; ++i) {
    const float x = a[i], y = b[i];
    aa[0] += static_cast<double>(x * x);
    bb[0] += static_cast<double>(y * y);
    ab[0] += static_cast<double>(x) * static_cast<double>(y);
    b[i] = x;
  }
  std::array<double, 3> sums{};
  for (int lane = 0; lane < kLanes; ++lane) sums[0] += aa[lane], sums[1] += bb[lane], sums[2] += ab[lane];
  return sums;
}

// Calls `sum(first, count)` for chunks of [0, n), on several threads, and adds the results up in order.
template <class Sum>
double sum_chunks(std::int64_t n, Sum sum) {
  if (n <= kSumChunk) return sum(std::int64_t{0}, n);
  const auto chunks = (n + kSumChunk - 1) / kSumChunk;
  std::vector<double> parts(static_cast<std::size_t>(chunks));
  at::parallel_for(0, chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto chunk = begin; chunk < end; ++chunk)
      parts[static_cast<std::size_t>(chunk)] = sum(chunk * kSumChunk, std::min(kSumChunk, n - chunk * kSumChunk));
  });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

bool plain(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.scalar_type() == at::kFloat &&
         tensor.is_non_overlapping_and_dense();
}

// Whether the elements of both lie in memory in the same order, as floats without gaps.
bool plain_alike(const at::Tensor& a, const at::Tensor& b) {
  return plain(a) && plain(b) && a.strides() == b.strides();
}

// The divided gradient, of at least single precision; a sparse one as the vector of its values.
at::Tensor divided(const at::Tensor& gradient, const Preconditioner& by) {
  auto result = gradient.detach();
  if (result.is_sparse()) result = result.coalesce().values();
  if (result.scalar_type() != at::kDouble) result = result.to(at::kFloat);
  // Adam takes no sparse gradients, so that there is nothing to divide those by.
  if (!by.exp_avg_sq.defined() || gradient.is_sparse()) return result;
  return result / (by.exp_avg_sq.sqrt() / by.correction).add_(by.eps);
}

at::Tensor inner_product(const at::Tensor& a, const at::Tensor& b) { return (a * b).sum(at::kDouble); }

}  // namespace

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

GroupSums::GroupSums(std::size_t groups, std::size_t sums, at::Device device)
    : sums_(at::zeros({static_cast<std::int64_t>(groups), static_cast<std::int64_t>(sums)},
                      at::TensorOptions(at::kDouble).device(device))) {}

void GroupSums::clear() { sums_.zero_(); }

void GroupSums::add(std::size_t group, std::size_t sum, const at::Tensor& value) {
  sums_[static_cast<std::int64_t>(group)][static_cast<std::int64_t>(sum)].add_(value);
}

void GroupSums::add_squared_norm(std::size_t group, const at::Tensor& gradient, const Preconditioner& by) {
  ::torch::NoGradGuard no_grad;
  double* const sum =
      sums_.device().is_cpu() ? sums_.data_ptr<double>() + static_cast<std::int64_t>(group) * sums_.size(1) : nullptr;
  if (sum && !by.exp_avg_sq.defined() && plain(gradient)) {
    const float* const g = gradient.data_ptr<float>();
    *sum += sum_chunks(gradient.numel(), [&](auto first, auto count) { return sum_squares(g + first, count); });
  } else if (sum && by.exp_avg_sq.defined() && plain_alike(gradient, by.exp_avg_sq)) {
    const float *const g = gradient.data_ptr<float>(), *const v = by.exp_avg_sq.data_ptr<float>();
    *sum += sum_chunks(gradient.numel(), [&](auto first, auto count) {
      return sum_squares(g + first, v + first, static_cast<float>(by.correction), static_cast<float>(by.eps), count);
    });
  } else {
    const auto quotient = divided(gradient, by);
    add(group, 0, inner_product(quotient, quotient));
  }
}

void GroupSums::add_pair(std::size_t group, const at::Tensor& gradient, at::Tensor& previous,
                         const Preconditioner& by) {
  ::torch::NoGradGuard no_grad;
  if (sums_.device().is_cpu() && !by.exp_avg_sq.defined() && plain_alike(gradient, previous)) {
    const float* const a = gradient.data_ptr<float>();
    float* const b = previous.data_ptr<float>();
    double* const sums = sums_.data_ptr<double>() + static_cast<std::int64_t>(group) * sums_.size(1);
    for (std::int64_t first = 0; first < gradient.numel(); first += kSumChunk) {
      const auto parts = sum_products(a + first, b + first, std::min(kSumChunk, gradient.numel() - first));
      for (std::size_t i = 0; i < parts.size(); ++i) sums[i] += parts[i];
    }
    return;
  }
  if (gradient.is_sparse()) {
    const auto a = gradient.detach().coalesce(), b = previous.coalesce(), both = (a + b).coalesce();
    const auto aa = inner_product(a.values(), a.values()), bb = inner_product(b.values(), b.values());
    add(group, 0, aa);
    add(group, 1, bb);
    add(group, 2, (inner_product(both.values(), both.values()) - aa - bb) / 2);
  } else {
    const auto a = divided(gradient, by), b = divided(previous, by);
    add(group, 0, inner_product(a, a));
    add(group, 1, inner_product(b, b));
    add(group, 2, inner_product(a, b));
  }
  previous.copy_(gradient.detach());
}

std::vector<double> GroupSums::values() const {
  const auto host = sums_.cpu().contiguous();
  return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
}

}  // namespace adaptdl::torch
