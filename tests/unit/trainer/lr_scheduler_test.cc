// Tests that the learning rates of schedulers match PyTorch's, and that invalid options are rejected.
#include "adaptdl/torch/lr_scheduler.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/torch/adadelta.h"
#include "lr_scheduler_support.h"

namespace lr_scheduler_test {

namespace {

namespace optim = torch::optim;
using adaptdl::UsageError;
using namespace adaptdl;
using lr_scheduler_support::lr_of;
using lr_scheduler_support::parameter;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The values are computed by lr_scheduler_reference.py.
struct Row {
  int steps;
  double first, second, momentum;  // learning rates of two groups, and momentum or beta1 of the first
};
struct PlateauRow {
  double metric, first, second;
};

const std::vector<Row> kCosine{
    {0, 0.4, 0.05, 0.9},
    {1, 0.39045602067755497, 0.04902113032590308, 0.9},
    {3, 0.3196181241970323, 0.04175570504584947, 0.9},
    {7, 0.09038187580296776, 0.018244294954150538, 0.9},
    {9, 0.019543979322445063, 0.01097886967409693, 0.9},
    {10, 0.01, 0.01, 0.9},
    {11, 0.01954397932244506, 0.01097886967409693, 0.9},
    {14, 0.1447416860968858, 0.023819660112501112, 0.9},
    {20, 0.4000000000000016, 0.05000000000000018, 0.9},
};
const std::vector<Row> kMultiStep{
    {0, 0.4, 0.05, 0.9},     {2, 0.4, 0.05, 0.9},     {3, 0.1, 0.0125, 0.9},     {4, 0.1, 0.0125, 0.9},
    {5, 0.05, 0.00625, 0.9}, {7, 0.05, 0.00625, 0.9}, {8, 0.025, 0.003125, 0.9}, {9, 0.025, 0.003125, 0.9},
};
const std::vector<Row> kExponential{
    {0, 0.4, 0.05, 0.9},
    {1, 0.36000000000000004, 0.045000000000000005, 0.9},
    {5, 0.23619600000000007, 0.02952450000000001, 0.9},
    {30, 0.016956463310086503, 0.002119557913760813, 0.9},
};
const std::vector<Row> kLambda{
    {0, 0.2, 0.025, 0.9},
    {1, 0.12666666666666668, 0.015833333333333335, 0.9},
    {4, 0.054300416666666664, 0.006787552083333333, 0.9},
    {9, 0.022918160353622152, 0.002864770044202769, 0.9},
};
const std::vector<Row> kOneCycle{
    {0, 0.040000000000000036, 0.008000000000000007, 0.95},
    {1, 0.1316718427000253, 0.026334368540005065, 0.9404508497187474},
    {2, 0.3716718427000253, 0.07433436854000505, 0.9154508497187474},
    {5, 1.0, 0.2, 0.85},
    {6, 0.9874640062350873, 0.19749280124701749, 0.8512536043909088},
    {12, 0.500002, 0.1000004, 0.8999999999999999},
    {18, 0.012539993764912554, 0.002507998752982511, 0.9487463956090911},
    {19, 4e-06, 8e-07, 0.95},
};
const std::vector<Row> kOneCycleLinear{
    {0, 0.08, 0.08, 0.9},
    {3, 0.3885714285714286, 0.3885714285714286, 0.8142857142857143},
    {7, 0.8, 0.8, 0.7},
    {8, 0.6971428571428572, 0.6971428571428572, 0.7285714285714285},
    {13, 0.18285714285714283, 0.18285714285714283, 0.8714285714285714},
    {14, 0.07999999999999996, 0.07999999999999996, 0.9},
    {15, 0.06416, 0.06416, 0.9},
    {17, 0.03248, 0.03248, 0.9},
    {19, 0.0007999999999999952, 0.0007999999999999952, 0.9},
};
const std::vector<Row> kOneCycleAdam{
    {0, 0.0003999999999999993, 0.0003999999999999993, 0.95},
    {2, 0.006268100482990309, 0.006268100482990309, 0.8888739533021842},
    {4, 0.009944154354509118, 0.009944154354509118, 0.8505584586887436},
    {9, 0.00462637102666975, 0.00462637102666975, 0.9037365046793212},
    {14, 4e-08, 4e-08, 0.95},
};
const std::vector<Row> kLinear{
    {0, 0.1, 0.0125, 0.9},
    {1, 0.17500000000000002, 0.021875000000000002, 0.9},
    {2, 0.25000000000000006, 0.03125000000000001, 0.9},
    {3, 0.32500000000000007, 0.04062500000000001, 0.9},
    {4, 0.4000000000000001, 0.05000000000000001, 0.9},
    {6, 0.4000000000000001, 0.05000000000000001, 0.9},
};
const std::vector<Row> kLinearThenCosine{
    {0, 0.1, 0.0125, 0.9},
    {1, 0.17500000000000002, 0.021875000000000002, 0.9},
    {3, 0.32500000000000007, 0.04062500000000001, 0.9},
    {4, 0.4, 0.05, 0.9},
    {5, 0.39021130325903075, 0.048776412907378844, 0.9},
    {9, 0.20000000000000004, 0.025000000000000005, 0.9},
    {14, 0.0, 0.0, 0.9},
};
const std::vector<PlateauRow> kLosses{
    {1.0, 0.4, 0.05},     {0.9, 0.4, 0.05},     {0.89, 0.4, 0.05},    {0.8899, 0.4, 0.05}, {0.9, 0.4, 0.05},
    {kNan, 0.2, 0.025},   {0.95, 0.2, 0.025},   {0.88, 0.2, 0.025},   {0.88, 0.2, 0.025},  {0.88, 0.2, 0.025},
    {0.88, 0.15, 0.0125}, {0.88, 0.15, 0.0125}, {0.88, 0.15, 0.0125},
};
const std::vector<PlateauRow> kAccuracies{
    {0.1, 0.4, 0.05},
    {0.5, 0.4, 0.05},
    {0.55, 0.4, 0.05},
    {0.58, 0.08000000000000002, 0.010000000000000002},
    {0.6, 0.08000000000000002, 0.010000000000000002},
    {0.61, 0.08000000000000002, 0.010000000000000002},
    {0.62, 0.08000000000000002, 0.010000000000000002},
    {0.63, 0.016000000000000004, 0.0020000000000000005},
    {0.64, 0.016000000000000004, 0.0020000000000000005},
};

optim::SGD two_groups() {
  std::vector<optim::OptimizerParamGroup> groups;
  for (const double lr : {0.4, 0.05})
    groups.emplace_back(std::vector<at::Tensor>{parameter()},
                        std::make_unique<optim::SGDOptions>(optim::SGDOptions(lr).momentum(0.9)));
  return optim::SGD(std::move(groups), optim::SGDOptions(0.1));
}

doctest::Approx near(double value) { return doctest::Approx(value).epsilon(1e-12).scale(1e-3); }

// Steps `scheduler` and checks its rates against the table, and then checks the table in reverse with step_to.
void check(LRSchedule& scheduler, optim::Optimizer& optimizer, const std::vector<Row>& rows) {
  const auto check_row = [&](const Row& row) {
    CAPTURE(row.steps);
    CHECK(lr_of(optimizer, 0) == near(row.first));
    CHECK(lr_of(optimizer, optimizer.param_groups().size() - 1) == near(row.second));
    auto& options = optimizer.param_groups()[0].options();
    if (auto* sgd = dynamic_cast<optim::SGDOptions*>(&options)) CHECK(sgd->momentum() == near(row.momentum));
    if (auto* adam = dynamic_cast<optim::AdamOptions*>(&options))
      CHECK(std::get<0>(adam->betas()) == near(row.momentum));
  };
  int steps = 0;
  for (const auto& row : rows) {
    for (; steps < row.steps; ++steps) scheduler.step();
    CHECK(scheduler.position() == row.steps);
    check_row(row);
  }
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    scheduler.step_to(row->steps);
    check_row(*row);
  }
}

}  // namespace

TEST_CASE("schedules match PyTorch's, by step and by position") {
  SUBCASE("cosine") {
    auto optimizer = two_groups();
    CosineAnnealingLR scheduler(optimizer, 10, 0.01);
    check(scheduler, optimizer, kCosine);
  }
  SUBCASE("multi-step") {
    auto optimizer = two_groups();
    MultiStepLR scheduler(optimizer, {5, 3, 3, 8}, 0.5);
    check(scheduler, optimizer, kMultiStep);
  }
  SUBCASE("exponential") {
    auto optimizer = two_groups();
    ExponentialLR scheduler(optimizer, 0.9);
    check(scheduler, optimizer, kExponential);
  }
  SUBCASE("lambda") {
    auto optimizer = two_groups();
    LambdaLR scheduler(optimizer, [](double n) { return std::pow(0.95, n) / (n + 2); });
    check(scheduler, optimizer, kLambda);
  }
  SUBCASE("one cycle") {
    auto optimizer = two_groups();
    OneCycleLR scheduler(optimizer, {.max_lr = {1.0, 0.2}, .total_steps = 20});
    check(scheduler, optimizer, kOneCycle);
  }
  SUBCASE("one cycle, linear, three phases") {
    auto optimizer = two_groups();
    OneCycleLR scheduler(optimizer, {.max_lr = {0.8},
                                     .total_steps = 20,
                                     .pct_start = 0.4,
                                     .linear = true,
                                     .base_momentum = 0.7,
                                     .max_momentum = 0.9,
                                     .div_factor = 10,
                                     .final_div_factor = 100,
                                     .three_phase = true});
    check(scheduler, optimizer, kOneCycleLinear);
  }
  SUBCASE("one cycle, Adam") {
    optim::Adam optimizer({parameter()}, optim::AdamOptions(0.001).betas({0.8, 0.99}));
    OneCycleLR scheduler(optimizer, {.max_lr = {0.01}, .total_steps = 15});
    check(scheduler, optimizer, kOneCycleAdam);
    CHECK(std::get<1>(static_cast<optim::AdamOptions&>(optimizer.param_groups()[0].options()).betas()) == 0.99);
  }
  SUBCASE("linear warm-up") {
    auto optimizer = two_groups();
    LinearWarmup scheduler(optimizer, {.steps = 4, .start_factor = 0.25});
    check(scheduler, optimizer, kLinear);
  }
  SUBCASE("linear warm-up, then cosine") {
    auto optimizer = two_groups();
    CosineAnnealingLR cosine(optimizer, 10);
    LinearWarmup scheduler(optimizer, cosine, {.steps = 4, .start_factor = 0.25});
    check(scheduler, optimizer, kLinearThenCosine);
  }
}

TEST_CASE("ReduceLROnPlateau matches PyTorch") {
  const auto check_rows = [](ReduceLROnPlateau& scheduler, optim::Optimizer& optimizer,
                             const std::vector<PlateauRow>& rows) {
    for (const auto& row : rows) {
      scheduler.step(row.metric);
      CAPTURE(row.metric);
      CHECK(lr_of(optimizer, 0) == near(row.first));
      CHECK(lr_of(optimizer, 1) == near(row.second));
    }
  };
  auto optimizer = two_groups();
  SUBCASE("losses") {
    ReduceLROnPlateau scheduler(
        optimizer, {.factor = 0.5, .patience = 2, .threshold = 0.01, .cooldown = 1, .min_lr = {0.15, 0.01}});
    check_rows(scheduler, optimizer, kLosses);
  }
  SUBCASE("accuracies") {
    ReduceLROnPlateau scheduler(
        optimizer, {.maximize = true, .factor = 0.2, .patience = 1, .threshold = 0.1, .absolute_threshold = true});
    check_rows(scheduler, optimizer, kAccuracies);
  }
}

TEST_CASE("OneCycleLR stays at its lowest rate after its last step") {
  auto optimizer = two_groups();
  OneCycleLR scheduler(optimizer, {.max_lr = {1.0, 0.2}, .total_steps = 20});
  for (int step = 0; step < 30; ++step) scheduler.step();
  CHECK(lr_of(optimizer, 0) == near(4e-6));
}

TEST_CASE("step_to accepts fractional positions") {
  auto optimizer = two_groups();
  CosineAnnealingLR scheduler(optimizer, 10);
  scheduler.step_to(2.5);
  CHECK(lr_of(optimizer, 0) == near(0.4 * (1 + std::cos(M_PI / 4)) / 2));
  scheduler.step();
  CHECK(scheduler.position() == 3.5);
}

TEST_CASE("a warm-up can be followed by LibTorch's StepLR, but then does not support step_to") {
  auto optimizer = two_groups();
  optim::StepLR halves(optimizer, 2, 0.5);
  LinearWarmup scheduler(optimizer, halves, {.steps = 2, .start_factor = 0.5});
  std::vector<double> rates;
  for (int step = 0; step < 8; ++step) {
    rates.push_back(lr_of(optimizer, 0));
    scheduler.step();
  }
  // The first step of StepLR does not change the rate.
  const std::vector<double> expected{0.2, 0.3, 0.4, 0.4, 0.4, 0.2, 0.2, 0.1};
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(rates[i] == near(expected[i]));
  CHECK_THROWS_AS(scheduler.step_to(9), UsageError);
}

TEST_CASE("a warm-up keeps a learning rate that the subsequent plateau scheduler has reduced") {
  auto optimizer = two_groups();
  ReduceLROnPlateau plateau(optimizer, {.factor = 0.5, .patience = 0});
  LinearWarmup scheduler(optimizer, plateau, {.steps = 2, .start_factor = 0.5});
  for (int step = 0; step < 3; ++step) scheduler.step();
  plateau.step(1.0);
  plateau.step(1.0);
  scheduler.step();
  CHECK(lr_of(optimizer, 0) == near(0.2));
}

TEST_CASE("invalid options and arguments are rejected") {
  auto optimizer = two_groups();
  CHECK_THROWS_WITH_AS(CosineAnnealingLR(optimizer, 0), "CosineAnnealingLR: t_max must be above 0", UsageError);
  CHECK_THROWS_WITH_AS(ExponentialLR(optimizer, 0), "ExponentialLR: gamma must be above 0", UsageError);
  CHECK_THROWS_WITH_AS(OneCycleLR(optimizer, {.max_lr = {1}}), "OneCycleLR: total_steps must be 1 or more", UsageError);
  CHECK_THROWS_WITH_AS(OneCycleLR(optimizer, {.max_lr = {1, 2, 3}, .total_steps = 9}),
                       "OneCycleLR: max_lr must have one value, or one per parameter group (2), got 3 values",
                       UsageError);
  CHECK_THROWS_WITH_AS(OneCycleLR(optimizer, {.max_lr = {1}, .total_steps = 9, .pct_start = 1.5}),
                       "OneCycleLR: pct_start must be between 0 and 1", UsageError);
  CHECK_THROWS_WITH_AS(ReduceLROnPlateau(optimizer, {.factor = 1}), "ReduceLROnPlateau: factor must be below 1",
                       UsageError);
  CHECK_THROWS_WITH_AS(LinearWarmup(optimizer, {.steps = -1}), "LinearWarmup: steps must not be negative", UsageError);
  Adadelta adadelta({parameter()});
  CHECK_THROWS_WITH_AS(OneCycleLR(adadelta, {.max_lr = {1}, .total_steps = 9}),
                       "OneCycleLR: this optimizer has no momentum and no beta1; set cycle_momentum to false",
                       UsageError);
  CosineAnnealingLR cosine(optimizer, 10);
  CHECK_THROWS_AS(cosine.step_to(-1), UsageError);
  optimizer.add_param_group(optim::OptimizerParamGroup({parameter()}));
  CHECK_THROWS_WITH_AS(
      cosine.step(), "CosineAnnealingLR: a parameter group was added to the optimizer after its scheduler was created",
      UsageError);
}

}  // namespace lr_scheduler_test
