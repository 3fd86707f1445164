#include "scaling/squared_norm.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <tuple>
#include <utility>

#include "support/torch_compat.h"

namespace adaptdl {

namespace {

constexpr std::int64_t kSumChunk = std::int64_t{1} << 16;  // elements that one thread sums at a time
constexpr int kLanes = 16;                                 // number of partial sums, which the compiler vectorizes
// A chunk is read in kStreams interleaved parts, prefetching kAhead elements ahead, because a core then waits less for
// memory.
constexpr int kStreams = 4, kAhead = 256;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
// The variant is chosen at program start, depending on the processor's features. AVX-512 would not be faster, because
// memory is the bottleneck, and would slow down the surrounding matrix products.
#define ADAPTDL_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define ADAPTDL_VECTOR_CLONES
#endif

ADAPTDL_VECTOR_CLONES double sum_squares(const float* g, std::int64_t n) {
  std::array<std::array<double, kLanes>, kStreams> sums{};
  const auto length = n / (kStreams * kLanes) * kLanes;
  for (std::int64_t i = 0; i < length; i += kLanes) {
    for (int stream = 0; stream < kStreams; ++stream) {
      const float* const next = g + stream * length + i;
      __builtin_prefetch(next + kAhead);
      for (int lane = 0; lane < kLanes; ++lane) sums[stream][lane] += static_cast<double>(next[lane] * next[lane]);
    }
  }
  double sum = 0;
  for (std::int64_t i = kStreams * length; i < n; ++i) sum += static_cast<double>(g[i] * g[i]);
  for (const auto& lanes : sums) {
    for (const double lane : lanes) sum += lane;
  }
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

// Returns |a|^2, |b|^2 and a·b, and copies a to b.
ADAPTDL_VECTOR_CLONES std::array<double, 3> sum_products(const float* __restrict a, float* __restrict b,
                                                         std::int64_t n) {
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

// Calls `sum(first, count)` for chunks of [0, n), on several threads, and adds the returned arrays in order.
template <class Sum>
auto sum_chunks(std::int64_t n, Sum sum) {
  using Sums = decltype(sum(n, n));
  if (n <= kSumChunk) return sum(std::int64_t{0}, n);
  const auto chunks = (n + kSumChunk - 1) / kSumChunk;
  std::vector<Sums> parts(static_cast<std::size_t>(chunks));
  at::parallel_for(0, chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto chunk = begin; chunk < end; ++chunk)
      parts[static_cast<std::size_t>(chunk)] = sum(chunk * kSumChunk, std::min(kSumChunk, n - chunk * kSumChunk));
  });
  Sums total{};
  for (const Sums& part : parts) {
    for (std::size_t i = 0; i < part.size(); ++i) total[i] += part[i];
  }
  return total;
}

bool plain(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.scalar_type() == at::kFloat &&
         tensor.is_non_overlapping_and_dense();
}

// Returns whether both tensors store their elements in the same order and without gaps.
bool dense_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.is_non_overlapping_and_dense() && a.strides() == b.strides();
}

// Returns the same as dense_alike for floats on the CPU, and false for other tensors.
bool plain_alike(const at::Tensor& a, const at::Tensor& b) { return plain(a) && plain(b) && dense_alike(a, b); }

// Returns the gradient's values in at least single precision. For a sparse gradient, these are only the stored values.
at::Tensor of_values(const at::Tensor& gradient) {
  auto result = gradient.detach();
  if (result.is_sparse()) result = result.coalesce().values();
  return result.scalar_type() == at::kDouble ? result : result.to(at::kFloat);
}

at::Tensor squared_norm(const at::Tensor& values) { return values.square().sum(at::kDouble); }

// Returns the gradient's divisor, undefined if there is none. Sparse gradients have no divisor, because Adam does not
// accept sparse gradients.
at::Tensor divisor(const Preconditioner& by) {
  return by.exp_avg_sq.defined() ? (by.exp_avg_sq.sqrt() / by.correction).add_(by.eps) : at::Tensor();
}

at::Tensor divided(const at::Tensor& gradient, const at::Tensor& divisor) {
  const auto values = of_values(gradient);
  return divisor.defined() ? values / divisor : values;
}

// Flattened dense gradients of one group on one GPU. Either all of them have preconditioners with the same `correction`
// and `eps`, or none has a preconditioner. Unless the gradients are large, an operation on all of them together takes
// as long as an operation on a single gradient.
class Batch {
 public:
  void add(const GroupGradient& gradient, const at::Tensor* previous) {
    const auto& by = gradient.preconditioner;
    const auto& first = gradient.gradient;
    // Copying requires an extra operation, and is unnecessary if all tensors store their elements in the same order.
    const bool alike = first.is_non_overlapping_and_dense() && (!previous || dense_alike(first, *previous)) &&
                       (!by.exp_avg_sq.defined() || dense_alike(first, by.exp_avg_sq));
    const auto flat = [alike](const at::Tensor& tensor) {
      return alike ? tensor.detach().as_strided({tensor.numel()}, {1}) : tensor.detach().reshape(-1);
    };
    gradients_.push_back(flat(first));
    if (previous) previous_.push_back(flat(*previous));
    if (by.exp_avg_sq.defined()) exp_avg_sq_.push_back(flat(by.exp_avg_sq));
    by_ = {{}, by.correction, by.eps};
    elements_ += first.numel();
  }
  std::int64_t elements() const noexcept { return elements_; }
  at::Device device() const { return gradients_[0].device(); }

  // Returns the norm of the gradients and, if there are previous gradients, the norms of the previous gradients and of
  // the sums.
  std::vector<at::Tensor> norms() const {
    auto a = of_values(joined(gradients_));
    const auto divisors = exp_avg_sq_.empty() ? at::Tensor() : divisor({joined(exp_avg_sq_), by_.correction, by_.eps});
    if (divisors.defined()) a = a / divisors;
    if (previous_.empty()) return {at::norm(a)};
    auto b = of_values(joined(previous_));
    if (divisors.defined()) b = b / divisors;
    return {at::norm(a), at::norm(b), at::norm(a + b)};
  }

 private:
  static at::Tensor joined(const std::vector<at::Tensor>& flat) { return flat.size() == 1 ? flat[0] : at::cat(flat); }

  std::vector<at::Tensor> gradients_, previous_, exp_avg_sq_;
  Preconditioner by_;
  std::int64_t elements_ = 0;
};

// Batches by group, device and preconditioner. Calls `use` with each batch. A batch has at most kMaxElements elements
// unless it is a single gradient. This limits the memory for temporaries.
class Batches {
 public:
  template <class Use>
  void add(const GroupGradient& gradient, const at::Tensor* previous, Use use) {
    const auto& by = gradient.preconditioner;
    const Key key{gradient.group, gradient.gradient.get_device(), by.exp_avg_sq.defined(), by.correction, by.eps};
    if (const auto found = batches_.find(key);
        found != batches_.end() && found->second.elements() + gradient.gradient.numel() > kMaxElements) {
      use(gradient.group, found->second);
      batches_.erase(found);
    }
    batches_[key].add(gradient, previous);
  }
  template <class Use>
  void finish(Use use) {
    for (const auto& [key, batch] : batches_) use(std::get<0>(key), batch);
    batches_.clear();
  }

 private:
  static constexpr std::int64_t kMaxElements = std::int64_t{1} << 24;
  using Key = std::tuple<std::size_t, std::int64_t, bool, double, double>;
  std::map<Key, Batch> batches_;
};

}  // namespace

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

std::vector<double> first_sums(const std::vector<double>& sums) {
  std::vector<double> result;
  for (std::size_t i = 0; i < sums.size(); i += kPairSums) result.push_back(sums[i]);
  return result;
}

GroupSums::GroupSums(std::size_t groups, std::size_t sums, at::Device device)
    : sums_(at::zeros({static_cast<std::int64_t>(groups), static_cast<std::int64_t>(sums)},
                      at::TensorOptions(at::kDouble).device(device))) {}

void GroupSums::clear() {
  norms_.clear();
  sums_.zero_();
}

// Adds each value to the group's sum at the same index.
void GroupSums::add(std::size_t group, const std::vector<at::Tensor>& values) {
  sums_[static_cast<std::int64_t>(group)]
      .narrow(0, 0, static_cast<std::int64_t>(values.size()))
      .add_(at::stack(values).to(sums_.device()));
}

// `norms` contains the same number of norms of each kind, one kind after the other. The squares of each kind are added
// to one sum.
void GroupSums::add_norms(std::size_t group, const std::vector<at::Tensor>& norms, std::size_t kinds) {
  sums_[static_cast<std::int64_t>(group)]
      .narrow(0, 0, static_cast<std::int64_t>(kinds))
      .add_(at::stack(norms)
                .to(sums_.device(), at::kDouble)
                .square()
                .view({static_cast<std::int64_t>(kinds), -1})
                .sum(1));
}

// The fast path for dense floats on the CPU. Returns false if it does not apply.
bool GroupSums::add_plain(const GroupGradient& gradient) {
  if (!sums_.device().is_cpu()) return false;
  double& sum = sums_.data_ptr<double>()[static_cast<std::int64_t>(gradient.group) * sums_.size(1)];
  const auto& by = gradient.preconditioner;
  if (!by.exp_avg_sq.defined() && plain(gradient.gradient)) {
    const float* const g = gradient.gradient.data_ptr<float>();
    sum += sum_chunks(gradient.gradient.numel(),
                      [&](auto first, auto count) { return std::array{sum_squares(g + first, count)}; })[0];
    return true;
  }
  if (by.exp_avg_sq.defined() && plain_alike(gradient.gradient, by.exp_avg_sq)) {
    const float *const g = gradient.gradient.data_ptr<float>(), *const v = by.exp_avg_sq.data_ptr<float>();
    sum += sum_chunks(gradient.gradient.numel(), [&](auto first, auto count) {
      return std::array{
          sum_squares(g + first, v + first, static_cast<float>(by.correction), static_cast<float>(by.eps), count)};
    })[0];
    return true;
  }
  return false;
}

bool GroupSums::add_plain_pair(const GroupGradient& gradient, const at::Tensor& previous) {
  if (!sums_.device().is_cpu() || gradient.preconditioner.exp_avg_sq.defined() ||
      !plain_alike(gradient.gradient, previous))
    return false;
  const float* const a = gradient.gradient.data_ptr<float>();
  float* const b = previous.data_ptr<float>();
  double* const sums = sums_.data_ptr<double>() + static_cast<std::int64_t>(gradient.group) * sums_.size(1);
  const auto [aa, bb, ab] =
      sum_chunks(previous.numel(), [&](auto first, auto count) { return sum_products(a + first, b + first, count); });
  sums[0] += aa;
  sums[1] += bb;
  sums[2] += aa + bb + 2 * ab;
  return true;
}

void GroupSums::add_squared_norm(const GroupGradient& gradient) {
  torch::NoGradGuard no_grad;
  if (add_plain(gradient)) return;
  const auto quotient = divided(gradient.gradient, divisor(gradient.preconditioner));
  if (quotient.is_cuda())
    norms_[{gradient.group, quotient.get_device()}].push_back(at::norm(quotient));
  else
    add(gradient.group, {squared_norm(quotient)});
}

void GroupSums::add_squared_norms(const std::vector<GroupGradient>& gradients) {
  torch::NoGradGuard no_grad;
  const auto measure = [this](std::size_t group, const Batch& batch) {
    norms_[{group, batch.device().index()}].push_back(batch.norms()[0]);
  };
  Batches batches;
  for (const auto& gradient : gradients) {
    if (!gradient.gradient.is_cuda() || gradient.gradient.is_sparse())
      add_squared_norm(gradient);
    else
      batches.add(gradient, nullptr, measure);
  }
  batches.finish(measure);
}

void GroupSums::add_pairs(const std::vector<GroupGradient>& gradients, const std::vector<at::Tensor>& previous) {
  torch::NoGradGuard no_grad;
  const auto measure = [this](std::size_t group, const Batch& batch) { add_norms(group, batch.norms(), 3); };
  Batches batches;
  std::vector<at::Tensor> to, from;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto& gradient = gradients[i];
    if (add_plain_pair(gradient, previous[i])) continue;
    to.push_back(previous[i]);
    from.push_back(gradient.gradient.detach());
    if (gradient.gradient.is_sparse()) {
      const auto a = from.back().coalesce(), b = previous[i].coalesce();
      add(gradient.group, {squared_norm(of_values(a)), squared_norm(of_values(b)), squared_norm(of_values(a + b))});
    } else if (gradient.gradient.is_cuda()) {
      batches.add(gradient, &previous[i], measure);
    } else {
      const auto by = divisor(gradient.preconditioner);
      const auto a = divided(gradient.gradient, by), b = divided(previous[i], by);
      const auto aa = squared_norm(a), bb = squared_norm(b), ab = (a * b).sum(at::kDouble);
      add(gradient.group, {aa, bb, aa + bb + 2 * ab});
    }
  }
  batches.finish(measure);
  compat::copy_all(to, from);
}

void GroupSums::flush() {
  torch::NoGradGuard no_grad;
  for (const auto& [key, norms] : norms_) add_norms(key.first, norms, 1);
  norms_.clear();
}

at::Tensor& GroupSums::tensor() {
  flush();
  return sums_;
}

std::vector<double> GroupSums::values() {
  const auto host = tensor().cpu().contiguous();
  return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
}

}  // namespace adaptdl
