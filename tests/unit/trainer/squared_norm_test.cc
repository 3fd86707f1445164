#include "scaling/squared_norm.h"

#include <torch/torch.h>

#include <cstdint>
#include <numeric>
#include <vector>

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace squared_norm_test {

namespace {

using adaptdl::GroupGradient;
using adaptdl::GroupSums;
using adaptdl::Preconditioner;

at::Tensor dense(const at::Tensor& tensor) { return tensor.to_dense().to(at::kDouble); }

at::Tensor divided(const at::Tensor& gradient, const Preconditioner& by) {
  if (!by.exp_avg_sq.defined()) return dense(gradient);
  return dense(gradient) / (dense(by.exp_avg_sq).sqrt() / by.correction + by.eps);
}

double squared(const at::Tensor& tensor) { return tensor.square().sum().item<double>(); }

// Returns gradients of all supported kinds, in two groups: of several types, strided, sparse, with a preconditioner.
std::vector<GroupGradient> gradients() {
  const auto sparse = at::sparse_coo_tensor(torch::tensor({{1, 4, 1}}), torch::randn({3, 2}), {6, 2});
  const Preconditioner by{torch::rand({5, 7}) + 0.1, 0.3, 1e-8};
  return {{0, torch::randn({70000}), {}},
          {1, torch::randn({5, 7}, at::kDouble), {}},
          {0, torch::randn({5, 7}).to(at::kHalf), {}},
          {1, torch::randn({7, 5}).t(), by},
          {1, torch::randn({5, 7}), by},
          {0, sparse, {}},
          {1, torch::randn({9}).to(at::kBFloat16), {}},
          {0, torch::zeros({4}), {}}};
}

}  // namespace

TEST_CASE("squared norms of all kinds of gradients match those in double precision, one at a time and together") {
  torch::manual_seed(1);
  const auto all = gradients();
  std::vector<double> expected(2, 0);
  for (const auto& each : all) expected[each.group] += squared(divided(each.gradient, each.preconditioner));
  GroupSums single(2, 1, at::kCPU), together(2, 1, at::kCPU);
  for (int time = 0; time < 2; ++time) {  // previous values are cleared
    single.clear();
    together.clear();
    for (const auto& each : all) single.add_squared_norm(each);
    together.add_squared_norms(all);
  }
  for (std::size_t group = 0; group < 2; ++group) {
    CHECK(single.values()[group] == doctest::Approx(expected[group]).epsilon(1e-6));
    CHECK(together.values()[group] == doctest::Approx(expected[group]).epsilon(1e-6));
  }
}

TEST_CASE("squared norms count every element once, for any number of elements") {
  std::vector<std::int64_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 0);
  for (const std::int64_t more : {-1, 0, 1, 63, 64, 65}) sizes.push_back((std::int64_t{1} << 16) + more);
  for (const auto size : sizes) {
    CAPTURE(size);
    const auto gradient = at::arange(size).remainder(7).to(at::kFloat), previous = gradient + 1;
    GroupSums norms(1, 1, at::kCPU), pairs(1, 3, at::kCPU);
    norms.add_squared_norm({0, gradient, {}});
    pairs.add_pairs({{0, gradient, {}}}, {previous.clone()});
    CHECK(norms.values()[0] == squared(gradient));
    CHECK(pairs.values() == std::vector<double>{squared(gradient), squared(previous), squared(gradient + previous)});
  }
}

TEST_CASE("squared norms of large gradients keep their precision for every type" * doctest::test_suite("slow")) {
  torch::manual_seed(3);
  const auto large = torch::randn({3'000'000});
  for (const auto type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    const auto gradient = large.to(type);
    GroupSums sums(1, 3, at::kCPU);
    sums.add_squared_norm({0, gradient, {}});
    CHECK(sums.values()[0] == doctest::Approx(squared(gradient.to(at::kDouble))).epsilon(1e-7));
    sums.clear();
    const auto previous = gradient.roll(1);
    const auto sum = gradient.to(at::kDouble) + previous.to(at::kDouble);
    sums.add_pairs({{0, gradient, {}}}, {previous});
    CHECK(sums.values()[2] == doctest::Approx(squared(sum)).epsilon(1e-7));
  }
}

TEST_CASE("add_pairs adds the squared norms of each gradient, its predecessor and their sum, and stores the gradient") {
  torch::manual_seed(2);
  const auto now = gradients(), before = gradients();
  std::vector<double> expected(6, 0);
  std::vector<at::Tensor> previous;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const auto& by = now[i].preconditioner;
    const auto a = divided(now[i].gradient, by), b = divided(before[i].gradient, by);
    expected[3 * now[i].group] += squared(a);
    expected[3 * now[i].group + 1] += squared(b);
    expected[3 * now[i].group + 2] += squared(a + b);
    previous.push_back(before[i].gradient.clone());
  }
  GroupSums sums(2, 3, at::kCPU);
  sums.add_pairs(now, previous);
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(sums.values()[i] == doctest::Approx(expected[i]).epsilon(1e-6));
  for (std::size_t i = 0; i < now.size(); ++i) CHECK(dense(previous[i]).equal(dense(now[i].gradient)));
}

}  // namespace squared_norm_test
