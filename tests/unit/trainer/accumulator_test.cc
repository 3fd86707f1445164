#include "adaptdl/torch/accumulator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "adaptdl/checkpoint.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "elastic_job.h"
#include "numbers.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

#include "error_of.h"

namespace accumulator_test {

namespace {

using adaptdl::Accumulator;
using adaptdl::AdaptiveDataLoader;
using adaptdl::remaining_epochs_until;
using adaptdl::UsageError;
using adaptdl::checkpoint::save_all_states;
using testing::ElasticJob;
using testing::Numbers;
using Loader = AdaptiveDataLoader<Numbers>;
using ::testing::error_of;
using ::testing::says;

constexpr int kCheckpointed = 143;
constexpr int kSaved = 7;  // exit code of a program that saves and exits by itself

Accumulator::Map contents(const Accumulator& accumulator) { return {accumulator.begin(), accumulator.end()}; }

void save_and_exit() {
  save_all_states();
  adaptdl::collective::teardown();
  _exit(kSaved);
}

}  // namespace

TEST_CASE("values are summed across all replicas and restarts") {
  // The scenario is that of the Python package's test, on 1, 4 and 2 replicas.
  const ElasticJob job;
  for (const int restart : {0, 1, 2}) {
    job.run_to(restart < 2 ? kSaved : 0,
               restart == 0   ? 1
               : restart == 1 ? 4
                              : 2,
               [&](int rank) {
                 Accumulator accumulator;
                 if (restart == 0) accumulator["a"] += 15;
                 EXPECT(!accumulator.contains("a"));
                 {
                   auto synchronized = accumulator.synchronized();
                   EXPECT(accumulator.contains("a"));
                   EXPECT(accumulator["a"] == 15);
                 }
                 EXPECT(!accumulator.contains("a"));
                 if (restart == 0) {
                   accumulator["a"] -= 5;
                   save_and_exit();
                 }
                 if (restart == 1) accumulator.update({{"a", rank}, {"b", rank}});
                 EXPECT(accumulator.empty());
                 {
                   auto synchronized = accumulator.synchronized();
                   EXPECT(accumulator.size() == 2);
                   EXPECT(accumulator["a"] == 16);
                   EXPECT(accumulator["b"] == 6);
                 }
                 EXPECT(accumulator.size() == 0);
                 if (restart == 1) save_and_exit();
                 accumulator -= {{"b", 5}, {"c", 5}};
                 {
                   auto synchronized = accumulator.synchronized();
                   EXPECT(contents(accumulator) == Accumulator::Map{{"a", 16}, {"b", -4}, {"c", -10}});
                   accumulator.clear();
                 }
                 auto synchronized = accumulator.synchronized();
                 EXPECT(accumulator.empty());
               });
  }
}

TEST_CASE("in accumulation mode the accumulator looks empty, and reading or setting a value fails") {
  ElasticJob().run_to(0, 1, [](int) {
    Accumulator accumulator({{"a", 1}});
    accumulator["a"] += 1;
    EXPECT(accumulator.empty() && accumulator.size() == 0 && accumulator.begin() == accumulator.end());
    EXPECT(!accumulator.contains("a"));
    EXPECT(!accumulator.erase("a"));
    accumulator.clear();
    EXPECT(says(error_of<UsageError>([&] { [[maybe_unused]] const double value = accumulator["a"]; }),
                "cannot read accumulator value 'a' in accumulation mode"));
    EXPECT(
        says(error_of<UsageError>([&] { [[maybe_unused]] const double value = accumulator["a"]; }), "synchronized()"));
    EXPECT(says(error_of<UsageError>([&] { accumulator["a"] = 3; }), "cannot set accumulator value 'a'"));
    auto synchronized = accumulator.synchronized();
    EXPECT(accumulator["a"] == 2);
  });
}

TEST_CASE("in synchronized mode the accumulator is a map until the outermost guard is released") {
  ElasticJob().run_to(0, 2, [](int rank) {
    Accumulator accumulator;
    accumulator += {{"x", 1.5}, {"y", rank}};
    accumulator -= {{"x", 0.5}};
    {
      auto outer = accumulator.synchronized();
      EXPECT(accumulator["x"] == 2);
      {
        auto inner = accumulator.synchronized();
        accumulator["z"] = accumulator["x"] / accumulator["y"];
      }
      EXPECT(accumulator["z"] == 2);
      accumulator["z"] += 1;
      accumulator["new"] -= 1;
      accumulator["copy"] = accumulator["z"];
      accumulator.update({{"copy", 1}});
      EXPECT(contents(accumulator) == Accumulator::Map{{"copy", 4}, {"new", -1}, {"x", 2}, {"y", 1}, {"z", 3}});
      EXPECT(accumulator.erase("x") && !accumulator.erase("x"));
      EXPECT(says(error_of<UsageError>([&] { [[maybe_unused]] const double value = accumulator["x"]; }),
                  "has no value 'x'; existing values: copy, new, y, z"));
    }
    EXPECT(accumulator.empty());
    accumulator["y"] += 1;
    auto moved = accumulator.synchronized();
    auto synchronized = std::move(moved);
    EXPECT(accumulator["y"] == 3);
  });
}

TEST_CASE("numbers are exchanged, saved and loaded bit for bit, including NaN, infinities and -0") {
  using Limits = std::numeric_limits<double>;
  const std::vector<double> values{Limits::quiet_NaN(),
                                   Limits::infinity(),
                                   -Limits::infinity(),
                                   -0.0,
                                   Limits::denorm_min(),
                                   Limits::max(),
                                   0.1,
                                   1e22,
                                   1.0 / 3};
  const auto expect_values = [&](Accumulator& accumulator) {
    auto synchronized = accumulator.synchronized();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double got = accumulator[fmt::format("v{}", i)];
      EXPECT(std::isnan(values[i]) ? std::isnan(got)
                                   : std::bit_cast<std::uint64_t>(got) == std::bit_cast<std::uint64_t>(values[i]));
    }
  };
  const ElasticJob job;
  job.run_to(kSaved, 2, [&](int rank) {
    Accumulator accumulator;
    Accumulator::Map start;
    for (std::size_t i = 0; i < values.size(); ++i) start[fmt::format("v{}", i)] = values[i];
    Accumulator given(start);
    if (rank == 1) accumulator += start;
    // A sum starts at 0, and 0 + -0 is 0, so -0 is set directly.
    {
      auto synchronized = accumulator.synchronized();
      accumulator["v3"] = -0.0;
    }
    save_and_exit();
  });
  job.run_to(0, 3, [&](int) {
    Accumulator accumulator, given;
    // This synchronization is replayed. The value that was set during its first run, before the restart, is included
    // only in the sums of the next synchronization.
    { auto synchronized = accumulator.synchronized(); }
    expect_values(accumulator);
    expect_values(given);
  });
}

TEST_CASE("sums are taken in rank order, so every replica and every run gets bitwise equal results") {
  for (int run = 0; run < 5; ++run) {
    ElasticJob().run_to(0, 3, [](int rank) {
      Accumulator accumulator;
      accumulator["x"] += rank == 0 ? 1e16 : rank == 1 ? 1.0 : -1e16;
      accumulator["only 2"] += rank == 2 ? 3 : 0;
      auto synchronized = accumulator.synchronized();
      EXPECT(accumulator["x"] == 0);  // (1e16 + 1) - 1e16; other orders yield 1
      EXPECT(accumulator["only 2"] == 3);
    });
  }
}

TEST_CASE("tensors keep their type when summed across replicas and restarts") {
  const ElasticJob job;
  for (const int code : {kCheckpointed, 0}) {
    job.run_to(code, code == 0 ? 3 : 2, [&](int rank) {
      Loader train(Numbers(12), {.batch_size = 6}), test(Numbers(12), {.batch_size = 2});
      Accumulator accumulator;
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        for (auto& batch : train) {
          auto counts = at::zeros({2, 12}, at::kLong);
          counts[0].index_add_(0, batch.data, at::ones_like(batch.data));
          counts[1] -= counts[0];
          accumulator["counts"] += counts;
          counts.zero_();  // the accumulator has its own copy
          accumulator["loss"] += at::full({}, 0.5);
          accumulator["batches"] += 1;
        }
        const auto synchronized = accumulator.synchronized();
        const auto counts = accumulator["counts"].tensor();
        EXPECT(counts.scalar_type() == at::kLong && counts[0].equal(at::ones(12, at::kLong)));
        EXPECT(counts[1].equal(-counts[0]));
        const double loss = accumulator["loss"], batches = accumulator["batches"];
        EXPECT(loss == batches / 2 && batches > 0);
        for ([[maybe_unused]] auto& batch : test) {
          if (code != 0 && rank == 1) kill(getpid(), SIGTERM);
        }
      }
    });
  }
}

TEST_CASE("adding incompatible values on two replicas fails on both") {
  const ElasticJob job;
  const auto codes = job.run(2, [&](int rank) {
    Accumulator accumulator;
    accumulator["x"] += at::ones(2 + rank);
    EXPECT(says(error_of<UsageError>([&] { const auto synchronized = accumulator.synchronized(); }),
                "accumulator value 'x': cannot add a tensor of shape [3] to one of shape [2]"));
    EXPECT(says(error_of<UsageError>([&] { accumulator["c"] += at::ones(1, at::kComplexFloat); }),
                "invalid accumulator value: a tensor of type ComplexFloat cannot be saved"));
  });
  CHECK(codes == std::vector<int>{0, 0});
}

TEST_CASE("incompatible and missing values are rejected, get() can return a fallback, and pop() removes a value") {
  ElasticJob().run_to(0, 1, [](int) {
    Accumulator accumulator({{"x", at::ones(2)}, {"n", 1}});
    EXPECT(accumulator.get("n", 7) == 7);  // the map is empty in accumulation mode
    const auto synchronized = accumulator.synchronized();
    EXPECT(says(error_of<UsageError>([&] { accumulator["x"] += at::ones(3); }),
                "accumulator value 'x': cannot add a tensor of shape [3] to one of shape [2]"));
    EXPECT(says(error_of<UsageError>([&] { accumulator["n"] += at::ones(3); }),
                "accumulator value 'n': cannot add a number and a tensor"));
    EXPECT(says(error_of<UsageError>([&] { static_cast<double>(accumulator["x"]); }), "read it with tensor()"));
    EXPECT(says(error_of<UsageError>([&] { accumulator["n"].tensor(); }), "is a number, not a tensor"));
    EXPECT(accumulator.get("n", 7) == 1 && accumulator.get("none", 7) == 7);
    EXPECT(accumulator.pop("x").tensor().equal(at::ones(2)) && accumulator.size() == 1);
    EXPECT(says(error_of<UsageError>([&] { accumulator.pop("x"); }),
                "the accumulator has no value 'x'; existing values: n"));
  });
}

TEST_CASE("a replayed synchronization yields its original values, even if the program changed them during it") {
  const ElasticJob job;
  for (const int code : {kCheckpointed, kCheckpointed, 0}) {
    job.run_to(code, 2, [&](int rank) {
      Loader first(Numbers(8), {.batch_size = 2}), second(Numbers(8), {.batch_size = 2});
      Accumulator accumulator;
      for (int epoch : remaining_epochs_until(2)) {
        for (auto& batch : first) accumulator["count"] += static_cast<double>(batch.data.numel());
        {
          auto synchronized = accumulator.synchronized();
          EXPECT(accumulator["count"] == 8);
          accumulator.clear();
        }
        for (auto& batch : second) {
          accumulator["later"] += static_cast<double>(batch.data.numel());
          // Interrupts the first run in epoch 0, and the second in epoch 1.
          if (code != 0 && rank == 1 && epoch == (adaptdl::checkpoint::loaded_number() ? 1 : 0))
            kill(getpid(), SIGTERM);
        }
        auto synchronized = accumulator.synchronized();
        EXPECT(contents(accumulator) == Accumulator::Map{{"later", 8}});
        accumulator.clear();
      }
    });
  }
}

TEST_CASE("an accumulator destroyed within an epoch is restored when the code that creates it is replayed") {
  const ElasticJob job;
  for (const int code : {kCheckpointed, 0}) {
    job.run_to(code, code == 0 ? 4 : 2, [&](int rank) {
      Loader train(Numbers(12), {.batch_size = 4}), test(Numbers(12), {.batch_size = 4});
      const auto count = [](Loader& loader, const std::function<void()>& in_loop) {
        Accumulator accumulator;
        for (auto& batch : loader) {
          accumulator["samples"] += static_cast<double>(batch.data.numel());
          in_loop();
        }
        auto synchronized = accumulator.synchronized();
        return accumulator["samples"].value();
      };
      for (int epoch : remaining_epochs_until(3)) {
        const double trained = count(train, [] {});
        EXPECT(trained == 12);
        const double tested = count(test, [&] {
          if (code != 0 && rank == 0 && epoch == 1) kill(getpid(), SIGTERM);
        });
        EXPECT(tested == 12);
      }
    });
  }
}

TEST_CASE("inside a loader loop an accumulator can be synchronized, but not created") {
  const ElasticJob job;
  for (const int code : {kCheckpointed, 0}) {
    job.run_to(code, 2, [&](int rank) {
      Loader loader(Numbers(12), {.batch_size = 2});
      Accumulator accumulator;
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        for ([[maybe_unused]] auto& batch : loader) {
          EXPECT(says(error_of<UsageError>([] { Accumulator late; }), "create it before or after the loop"));
          accumulator["steps"] += 1;
          auto synchronized = accumulator.synchronized();
          EXPECT(accumulator["steps"] == static_cast<double>(*loader.helper().current_index() + 2));
          if (code != 0 && rank == 1 && accumulator["steps"] == 4) kill(getpid(), SIGTERM);
        }
        auto synchronized = accumulator.synchronized();
        EXPECT(accumulator["steps"] == 12);
      }
    });
  }
}

}  // namespace accumulator_test
