// Tests the gradient noise scale on problems whose gradients have exactly known moments.
#include "adaptdl/torch/gradient_noise_scale.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "adaptdl/torch/data_loader_helper.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "replica_processes.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace gradient_noise_scale_test {

namespace {

using adaptdl::AdaptiveDataLoaderHelper;
using adaptdl::AdaptiveDataParallel;
using adaptdl::GradientNoiseScale;
using adaptdl::GradientSample;
namespace nn = torch::nn;
namespace optim = torch::optim;

constexpr std::int64_t kLocalBatch = 4;

// A finite population of samples, from which batches are drawn with replacement. Its moments are found by enumeration.
struct Problem {
  at::Tensor x, y;  // y is undefined for the quadratic
  at::Tensor loss(const at::Tensor& output, const at::Tensor& indices) const {
    if (!y.defined()) return 0.5 * (output - x.index_select(0, indices)).square().sum(1).mean();
    return at::binary_cross_entropy_with_logits(output.squeeze(1), y.index_select(0, indices));
  }
  at::Tensor input(const at::Tensor& indices) const { return x.index_select(0, indices); }
};

// A model that has only parameters, for a quadratic problem whose gradient at w for sample x is w - x.
struct PointImpl : nn::Module {
  explicit PointImpl(std::int64_t size) : w(register_parameter("w", at::zeros({size}))) {}
  at::Tensor forward(const at::Tensor& x) { return w.expand_as(x); }
  at::Tensor w;
};
TORCH_MODULE(Point);

Problem quadratic() {
  torch::manual_seed(5);
  return {torch::randn({256, 40}) * 0.5 + torch::linspace(0.5, 1.5, 40), {}};
}

// The features are around 1 and most labels are 1, so that the mean gradient at w = 0 is not lost in the noise.
Problem logistic() {
  torch::manual_seed(6);
  const auto x = torch::randn({256, 30}) * 0.4 + 1;
  const auto y = (torch::rand({256}) < 0.95).to(at::kFloat);
  return {x, y};
}

// Returns the squared norm of the mean, and the trace of the covariance, of sample gradients divided by `divide_by`.
std::pair<double, double> moments(const std::vector<at::Tensor>& per_sample, const std::vector<at::Tensor>& divide_by) {
  double sqr = 0, var = 0;
  for (std::size_t i = 0; i < per_sample.size(); ++i) {
    const auto scaled = per_sample[i].to(at::kDouble) / divide_by[i];
    const auto mean = scaled.mean(0);
    sqr += mean.square().sum().item<double>();
    var += (scaled - mean).square().sum().item<double>() / static_cast<double>(scaled.size(0));
  }
  return {sqr, var};
}

// Returns the gradients of all samples at w = 0, by formula.
std::vector<at::Tensor> gradients_of(const Problem& problem) {
  if (!problem.y.defined()) return {-problem.x};
  const auto residual = 0.5 - problem.y;
  return {residual.unsqueeze(1) * problem.x, residual.unsqueeze(1)};
}

// Returns Adam's divisors for its current state.
std::vector<at::Tensor> divisors(optim::Optimizer& optimizer, const std::vector<at::Tensor>& params, bool adam) {
  std::vector<at::Tensor> result;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (!adam) {
      result.push_back(at::ones({}));
      continue;
    }
    // The key type of the state map depends on LibTorch's version; the models trained with Adam have one parameter.
    auto& state = static_cast<optim::AdamParamState&>(*optimizer.state().begin()->second);
    result.push_back((state.exp_avg_sq() / (1 - std::pow(0.999, static_cast<double>(state.step())))).sqrt().flatten());
  }
  return result;
}

template <class Net>
void train(const Problem& problem, Net net, bool adam, int rank, int replicas, int accumulation, int steps,
           double tolerance = 0.02) {
  adaptdl::init_process_group("gloo");
  std::unique_ptr<optim::Optimizer> optimizer;
  // The learning rate is so small that the parameters do not change.
  if (adam)
    optimizer = std::make_unique<adaptdl::Adaptive<optim::Adam>>(net->parameters(), optim::AdamOptions(1e-12));
  else
    optimizer = std::make_unique<adaptdl::Adaptive<optim::SGD>>(net->parameters(), optim::SGDOptions(1e-12));
  AdaptiveDataParallel model(net, *optimizer);
  const auto batch = static_cast<std::size_t>(kLocalBatch * replicas * (accumulation + 1));
  AdaptiveDataLoaderHelper loader(batch);
  loader.autoscale_batch_size(batch, {.max = static_cast<std::size_t>(kLocalBatch)}, true);
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(17 + rank));
  double sqr = 0, var = 0;
  int averaged = 0;
  for ([[maybe_unused]] const int epoch : adaptdl::remaining_epochs_until(1)) {
    const auto context = loader.context();
    loader.skipdone();
    EXPECT(loader.sync_local_bsz() == static_cast<std::size_t>(kLocalBatch));
    EXPECT(loader.accumulation_steps() == accumulation);
    for (int i = 0; i < steps * (accumulation + 1); ++i) {
      const auto profile = loader.profile(false);
      const auto indices = torch::randint(0, problem.x.size(0), {kLocalBatch}, generator, at::kLong);
      auto loss = problem.loss(model(problem.input(indices)), indices);
      optimizer->zero_grad();
      loss.backward();
      optimizer->step();
      loader.advance();
      // Each running estimate has the noise of a thousand steps, so the estimates of the second half are averaged.
      if (!loader.is_optim_step() || i < steps * (accumulation + 1) / 2) continue;
      sqr += model.gns().sqr_avg(), var += model.gns().var_avg(), ++averaged;
    }
  }
  sqr /= averaged, var /= averaged;
  const auto [true_sqr, sample_var] = moments(gradients_of(problem), divisors(*optimizer, net->parameters(), adam));
  const double true_var = sample_var / static_cast<double>(batch);
  const auto close = [&](double a, double b) { return std::abs(a - b) <= tolerance * b; };
  if (!close(sqr, true_sqr) || !close(var, true_var)) {
    throw std::runtime_error(fmt::format("replicas {} accumulation {} adam {}: sqr {} for {}, var {} for {}", replicas,
                                         accumulation, adam, sqr, true_sqr, var, true_var));
  }
  adaptdl::destroy_process_group();
}

// With more gradients per step, fewer steps are needed.
int steps_for(int gradients) { return gradients == 1 ? 6000 : gradients < 8 ? 2000 : 1000; }

void converges(bool adam, int replicas, int accumulation) {
  testing::expect_replicas(replicas, [&](int rank) {
    torch::set_num_threads(1);
    const auto problem = quadratic();
    train(problem, Point(problem.x.size(1)), adam, rank, replicas, accumulation,
          steps_for(replicas * (accumulation + 1)));
  });
}

GradientSample sample(double local, double total, int count, double scale) {
  return {{local}, {total}, count, scale, false};
}

}  // namespace

TEST_CASE("estimates of a step are unbiased, and their averages are bias-corrected") {
  GradientNoiseScale noise(1);
  CHECK_FALSE(noise.known());
  CHECK(noise.gain(4) == doctest::Approx(1));
  noise.update(sample(5, 3, 4, 2));
  CHECK(noise.sqr_avg() == doctest::Approx((4 * 3 - 5) / 3.0));
  CHECK(noise.var_avg() == doctest::Approx((5 - 3) * 2 / 3.0));
  const double keep = std::pow(0.999, 8);
  noise.update(sample(9, 6, 2, 8));
  const double first = 1 - std::pow(0.999, 2);
  const double weight = keep * first + (1 - keep);
  CHECK(noise.sqr_avg() == doctest::Approx((keep * first * (7 / 3.0) + (1 - keep) * 3) / weight).epsilon(1e-12));
  CHECK(noise.var_avg() == doctest::Approx((keep * first * (4 / 3.0) + (1 - keep) * 24) / weight).epsilon(1e-12));
}

TEST_CASE("parameter groups are averaged separately, and negative estimates count as zero in the sum") {
  GradientNoiseScale noise(2);
  noise.update({{4, 1}, {1, 1}, 2, 1, false});
  CHECK(noise.raw_sqr_avg()[0] == doctest::Approx(-2));
  CHECK(noise.raw_sqr_avg()[1] == doctest::Approx(1));
  CHECK(noise.sqr_avg() == doctest::Approx(1));
  CHECK(noise.var_avg() == doctest::Approx(3 + 1e-6));
}

TEST_CASE("estimates from consecutive gradients are dropped once a step has several gradients") {
  GradientNoiseScale noise(1);
  noise.update({{100}, {50}, 2, 2, true});
  noise.update(sample(5, 3, 4, 2));
  CHECK(noise.sqr_avg() == doctest::Approx((4 * 3 - 5) / 3.0));
}

TEST_CASE("a step with NaN or infinity is ignored") {
  GradientNoiseScale noise(1);
  noise.update(sample(5, 3, 4, 2));
  const auto before = noise.save();
  CHECK_FALSE(noise.update(sample(std::nan(""), 3, 4, 2)));
  CHECK_FALSE(noise.update(sample(5, std::numeric_limits<double>::infinity(), 4, 2)));
  CHECK(noise.save() == before);
}

TEST_CASE("saved statistics load bit for bit, and invalid ones are rejected without any change") {
  GradientNoiseScale noise(2), other(2);
  noise.update({{4, 1.1}, {1, 0.7}, 3, 1.7, true});
  noise.advance(1.3);
  other.load(nlohmann::json::parse(noise.save().dump()));
  CHECK(other.save() == noise.save());
  CHECK(other.progress() == noise.progress());
  CHECK_THROWS_AS(other.load({{"sqr", 1}}), nlohmann::json::exception);
  CHECK(other.save() == noise.save());
}

TEST_CASE("on a quadratic, the estimates converge to the true moments within 2% with SGD" *
          doctest::test_suite("slow")) {
  converges(false, 1, 3);
}

TEST_CASE("on a quadratic, the estimates converge to the true moments with Adam on two replicas" *
          doctest::test_suite("slow")) {
  testing::expect_replicas(2, [](int rank) {
    torch::set_num_threads(1);
    const auto problem = quadratic();
    train(problem, Point(problem.x.size(1)), true, rank, 2, 1, 600, 0.05);
  });
}

TEST_CASE("the estimates converge to the true moments with any number of replicas and accumulation steps" *
          doctest::test_suite("full")) {
  for (const bool adam : {false, true})
    for (const int replicas : {1, 2, 4})
      for (const int accumulation : {0, 1, 3}) converges(adam, replicas, accumulation);
}

TEST_CASE("on logistic regression, the estimates converge within 2% on two replicas" * doctest::test_suite("full")) {
  testing::expect_replicas(2, [](int rank) {
    torch::set_num_threads(1);
    const auto problem = logistic();
    nn::Linear net(problem.x.size(1), 1);
    torch::NoGradGuard no_grad;
    net->weight.zero_();
    net->bias.zero_();
    torch::AutoGradMode grad(true);
    train(problem, net, false, rank, 2, 1, 4000);
  });
}

}  // namespace gradient_noise_scale_test
