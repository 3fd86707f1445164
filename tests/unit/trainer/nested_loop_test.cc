// Tests evaluation inside the training loop: a full pass over another loader, which neither a stop nor a rescale
// may interrupt.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <vector>

#include "adaptdl/metrics.h"
#include "adaptdl/signal.h"
#include "adaptdl/torch/bptt_iterator.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/iterable_loader.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "elastic_job.h"
#include "error_of.h"
#include "numbers.h"
#include "replica_processes.h"
#include "step_loops.h"

#include <doctest/doctest.h>

namespace nested_loop_test {

namespace {

namespace metrics = adaptdl::metrics;
using adaptdl::Adaptive;
using adaptdl::AdaptiveDataLoader;
using adaptdl::AdaptiveDataParallel;
using adaptdl::current_dataloader;
using adaptdl::remaining_epochs_until;
using adaptdl::UsageError;
using testing::ElasticJob;
using ::testing::error_of;
using testing::expect_replicas;
using testing::Numbers;
using ::testing::says;
using testing::samples_of;
using Loader = AdaptiveDataLoader<Numbers>;
using Samples = std::vector<std::int64_t>;

constexpr int kCheckpointed = 143;

template <class AnyLoader>
Samples read_all(AnyLoader& loader) {
  Samples samples;
  for (auto& batch : loader)
    for (const auto sample : samples_of(batch)) samples.push_back(sample);
  return samples;
}

Samples first_numbers(std::size_t count) {
  Samples numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

struct Stream {
  void reset() { next = 0; }
  Samples get_batch(std::size_t n) {
    Samples batch;
    while (batch.size() < n && next < 7) batch.push_back(next++);
    return batch;
  }
  std::int64_t next = 0;
};

}  // namespace

TEST_CASE("each nested evaluation is a full pass, and training reads the same samples as without it") {
  for (const std::int64_t workers : {0, 2}) {
    ElasticJob().run_to(0, 2, [&](int rank) {
      Loader loader(Numbers(12), {.batch_size = 4, .shuffle = true, .workers = workers});
      Loader evaluation(Numbers(6), {.batch_size = 2, .workers = workers}), other(Numbers(12), {.batch_size = 4, .shuffle = true});
      for ([[maybe_unused]] int epoch : remaining_epochs_until(2)) {
        Samples trained;
        for (auto& batch : loader) {
          for (const auto sample : samples_of(batch)) trained.push_back(sample);
          const auto index = loader.helper().current_index();
          for (int time = 0; time < 2; ++time) {
            Samples evaluated;
            for (auto& each : evaluation) {
              EXPECT(current_dataloader() == &evaluation.helper());
              EXPECT(evaluation.helper().nested());
              for (const auto sample : samples_of(each)) evaluated.push_back(sample);
            }
            EXPECT(evaluated == Samples{rank, rank + 2, rank + 4});
          }
          EXPECT(current_dataloader() == &loader.helper());
          EXPECT(loader.helper().current_index() == index);
        }
        EXPECT(trained == read_all(other));
        EXPECT(read_all(evaluation) == Samples{rank, rank + 2, rank + 4});
      }
    });
  }
}

TEST_CASE("iterable and BPTT loaders can be evaluated inside the training loop") {
  ElasticJob().run_to(0, 2, [](int rank) {
    Loader loader(Numbers(4), {.batch_size = 2});
    adaptdl::AdaptiveIterableLoader stream(Stream{}, {.batch_size = 4});
    adaptdl::AdaptiveBPTTIterator text(torch::arange(9), {.batch_size = 2, .bptt_len = 2});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      for ([[maybe_unused]] auto& batch : loader) {
        Samples streamed;
        for (auto& each : stream) streamed.insert(streamed.end(), each.begin(), each.end());
        EXPECT(streamed == Samples{rank, rank + 2, rank + 4});
        std::int64_t targets = 0;
        for (auto& each : text) targets += each.target.numel();
        EXPECT(targets == 4);
      }
    }
  });
}

TEST_CASE("a stop waits for the evaluation to finish, and no sample is lost or read twice") {
  const ElasticJob job;
  const auto run = [&](int code, int replicas, int stop_at) {
    job.run_to(code, replicas, [&](int) {
      adaptdl::signal::install();
      Loader loader(Numbers(24), {.batch_size = 6}), evaluation(Numbers(6), {.batch_size = 2});
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        int evaluations = 0;
        for (auto& batch : loader) {
          for (const auto sample : samples_of(batch)) job.note(fmt::format("{}", sample));
          for (auto& each : evaluation) {
            if (evaluations == stop_at) adaptdl::signal::request_stop(SIGTERM);
            for (const auto sample : samples_of(each)) job.note(fmt::format("{}", 100 + sample));
          }
          ++evaluations;
        }
      }
    });
  };
  run(kCheckpointed, 2, 1);
  run(0, 3, -1);
  Samples trained, evaluated;
  for (const auto& note : job.notes()) {
    const auto sample = std::stoll(note);
    sample < 100 ? trained.push_back(sample) : evaluated.push_back(sample - 100);
  }
  std::ranges::sort(trained);
  std::ranges::sort(evaluated);
  EXPECT(trained == first_numbers(24));
  Samples four_times;
  for (const auto sample : first_numbers(6)) four_times.insert(four_times.end(), 4, sample);
  EXPECT(evaluated == four_times);
}

TEST_CASE("an evaluation that breaks or throws does not affect the training loop") {
  ElasticJob().run_to(0, 1, [](int) {
    Loader loader(Numbers(4), {.batch_size = 1}), evaluation(Numbers(4));
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      Samples trained;
      for (auto& batch : loader) {
        trained.push_back(samples_of(batch)[0]);
        for ([[maybe_unused]] auto& each : evaluation) break;
        try {
          for ([[maybe_unused]] auto& each : evaluation) throw std::runtime_error("bad");
        } catch (const std::runtime_error&) {
        }
        EXPECT(current_dataloader() == &loader.helper());
      }
      EXPECT(trained == first_numbers(4));
      EXPECT(read_all(evaluation) == first_numbers(4));
    }
  });
}

TEST_CASE("an evaluation during accumulation changes neither the step nor the noise scale") {
  expect_replicas(2, [](int rank) {
    adaptdl::init_process_group("gloo");
    const auto train = [&](const std::string& name, bool evaluates) {
      auto net = testing::small_model();
      Adaptive<torch::optim::SGD> optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
      AdaptiveDataParallel model(net, optimizer, {.name = name});
      Loader loader(Numbers(16), {.batch_size = 8, .name = name}), evaluation(Numbers(4), {.name = name + "-evaluation"});
      loader.autoscale_batch_size(8, {.max = 2}, /*gradient_accumulation=*/true);
      for ([[maybe_unused]] int epoch : remaining_epochs_until(evaluates ? 2 : 1)) {
        int number = 0;
        for ([[maybe_unused]] auto& batch : loader) {
          const auto batch_of = [&] { return testing::inputs(rank, number); };
          model(batch_of()).square().mean().backward();
          if (evaluates) {
            model->eval();
            for ([[maybe_unused]] auto& each : evaluation) model(batch_of());
            for ([[maybe_unused]] auto& each : evaluation) torch::NoGradGuard{}, model(batch_of());
            model->train();
          }
          optimizer.step();
          if (loader.helper().is_optim_step()) optimizer.zero_grad();
          ++number;
        }
        EXPECT(loader.accumulation_steps() == 1);
      }
      return std::pair{testing::flat(*net), model.gns().save()};
    };
    const auto without = train("without", false), with = train("with", true);
    EXPECT(torch::equal(without.first, with.first));
    EXPECT(without.second == with.second);
    adaptdl::destroy_process_group();
  });
}

TEST_CASE("the time of a nested evaluation is excluded from the step time") {
  expect_replicas(1, [](int) {
    adaptdl::init_process_group("gloo");
    double clock = 0;
    metrics::set_clock([&] { return clock; });
    Loader loader(Numbers(64), {.batch_size = 8}), evaluation(Numbers(4));
    loader.autoscale_batch_size(8);
    metrics::set_grad_params("model", {.sqr = 1, .var = 1});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      int batches = 0;
      for ([[maybe_unused]] auto& batch : loader) {
        clock += 1;
        if (batches++ % 2 == 0) continue;
        for ([[maybe_unused]] auto& each : evaluation) clock += 100;
      }
    }
    metrics::begin_fit();
    metrics::finish_fit();
    const auto goodput = metrics::goodput_function();
    EXPECT(goodput.has_value());
    EXPECT(goodput->throughput(1, 1, 8, 0) > 7);
    metrics::set_clock({});
  });
}

TEST_CASE("invalid use of nested loops is rejected with an explanation") {
  expect_replicas(1, [](int) {
    adaptdl::init_process_group("gloo");
    auto net = testing::small_model();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    AdaptiveDataParallel model(net, optimizer);
    Loader loader(Numbers(2)), evaluation(Numbers(2), {.name = "evaluation"}), third(Numbers(2));
    loader.helper().train();
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      for ([[maybe_unused]] auto& batch : loader) {
        EXPECT(says(error_of<UsageError>([&] { read_all(loader); }), "inside its own loop"));
        for ([[maybe_unused]] auto& each : evaluation) {
          EXPECT(says(error_of<UsageError>([&] { read_all(third); }), "at most two loops can be nested"));
          EXPECT(says(error_of<UsageError>([&] { model(testing::inputs(0, 0)); }), "call eval() on the model"));
          EXPECT(current_dataloader() == &evaluation.helper());
        }
      }
      for ([[maybe_unused]] auto& batch : evaluation)
        EXPECT(says(error_of<UsageError>([&] { read_all(loader); }), "only a loop that does not train the model"));
    }
    adaptdl::destroy_process_group();
  });
}

}  // namespace nested_loop_test
