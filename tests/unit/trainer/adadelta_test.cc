#include "adaptdl/torch/adadelta.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>

#include "adaptdl/error.h"

namespace adadelta_test {

using adaptdl::Adadelta;
using adaptdl::AdadeltaOptions;

TEST_CASE("Adadelta follows the formulas of the paper") {
  const double rho = 0.8, eps = 1e-4, lr = 0.7, decay = 0.1;
  auto param = torch::full({1}, 2.0, torch::kDouble).requires_grad_();
  Adadelta optimizer({param}, AdadeltaOptions(lr).rho(rho).eps(eps).weight_decay(decay));
  double x = 2, square = 0, accumulated = 0;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    param.pow(4).sum().backward();
    optimizer.step();
    const double gradient = 4 * x * x * x + decay * x;
    square = rho * square + (1 - rho) * gradient * gradient;
    const double delta = std::sqrt(accumulated + eps) / std::sqrt(square + eps) * gradient;
    accumulated = rho * accumulated + (1 - rho) * delta * delta;
    x -= lr * delta;
    CHECK(param.item<double>() == doctest::Approx(x).epsilon(1e-12));
  }
}

TEST_CASE("Adadelta does not change parameters without a gradient") {
  auto used = torch::ones({2}).requires_grad_(), unused = torch::ones({2}).requires_grad_();
  Adadelta optimizer({used, unused});
  used.sum().backward();
  optimizer.step();
  CHECK_FALSE(used.equal(torch::ones({2})));
  CHECK(unused.equal(torch::ones({2})));
}

TEST_CASE("Adadelta rejects options out of range") {
  auto param = torch::ones({2}).requires_grad_();
  CHECK_THROWS_WITH_AS(Adadelta({param}, AdadeltaOptions(-1)), "Adadelta: lr must not be negative",
                       adaptdl::UsageError);
  CHECK_THROWS_WITH_AS(Adadelta({param}, AdadeltaOptions(1).rho(1.5)), "Adadelta: rho must be between 0 and 1",
                       adaptdl::UsageError);
}

}  // namespace adadelta_test
