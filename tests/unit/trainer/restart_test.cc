// Tests where loops over data resume after restarts. Each replica is a process, each interruption a real signal, and
// each checkpoint is on disk.
#include <fmt/format.h>
#include <signal.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/metrics.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "elastic_job.h"
#include "loop/batch_size_choice.h"
#include "numbers.h"
#include "replica_processes.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

#include "error_of.h"

namespace restart_test {

namespace {

using adaptdl::AdaptiveDataLoader;
using adaptdl::AdaptiveDataLoaderHelper;
using adaptdl::remaining_epochs_until;
using testing::ElasticJob;
using testing::kCheckpointed;
using testing::Numbers;
using testing::samples_of;
using Loader = AdaptiveDataLoader<Numbers>;
using ::testing::says;

// Parses the numbers of a note.
std::vector<std::size_t> numbers_of(const std::string& note) {
  std::istringstream text(note);
  std::vector<std::size_t> numbers;
  for (std::size_t number = 0; text >> number;) numbers.push_back(number);
  return numbers;
}

}  // namespace

TEST_CASE("random restarts on 1 to 4 replicas lose no sample and repeat fewer samples than there are replicas" *
          doctest::test_suite("slow")) {
  constexpr std::size_t kSamples = 211;
  constexpr int kEpochs = 2;
  for (unsigned seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    const ElasticJob job;
    std::mt19937 random(seed);
    std::map<int, int> last_replicas;  // by epoch
    bool finished = false;
    for (int run = 0; !finished; ++run) {
      REQUIRE(run < 60);
      const int replicas = 1 + run % 4;
      const int victim = static_cast<int>(random() % static_cast<unsigned>(replicas));
      const auto steps = random() % 9;
      const auto codes = job.run(replicas, [&](int rank) {
        Loader loader(Numbers(kSamples), {.batch_size = 12, .shuffle = true, .workers = run % 3, .seed = seed});
        std::size_t step = 0;
        for (int epoch : remaining_epochs_until(kEpochs)) {
          for (auto& batch : loader) {
            if (step++ == steps && rank == victim) kill(getpid(), SIGTERM);
            std::string note = fmt::format("{} {}", epoch, replicas);
            for (const auto sample : samples_of(batch)) note += fmt::format(" {}", sample);
            job.note(note);
          }
        }
      });
      finished = codes == std::vector<int>(static_cast<std::size_t>(replicas), 0);
      if (!finished) REQUIRE(codes == std::vector<int>(static_cast<std::size_t>(replicas), kCheckpointed));
    }
    std::map<std::size_t, std::map<std::size_t, int>> times;  // epoch -> sample -> times
    std::map<std::size_t, std::size_t> total, replicas_at_end;
    for (const auto& note : job.notes()) {
      const auto numbers = numbers_of(note);
      replicas_at_end[numbers[0]] = numbers[1];
      for (std::size_t i = 2; i < numbers.size(); ++i) ++times[numbers[0]][numbers[i]], ++total[numbers[0]];
    }
    for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
      CHECK(times[epoch].size() == kSamples);
      for (const auto& [sample, count] : times[epoch]) CHECK(count <= 2);
      CHECK(total[epoch] - kSamples < replicas_at_end[epoch]);
    }
  }
}

TEST_CASE("after a restart, finished loops are skipped and the interrupted one resumes, with several loaders") {
  // An epoch loops over first, second, first again, and a loader created in the epoch. Each loop is stopped once.
  for (const std::size_t stop_at : {2, 6, 11, 14}) {
    CAPTURE(stop_at);
    const ElasticJob job;
    for (const int code : {kCheckpointed, 0}) {
      job.run_to(code, 1, [&](int) {
        Loader first(Numbers(8), {.batch_size = 2}), second(Numbers(10), {.batch_size = 2});
        for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
          Loader third(Numbers(6), {.batch_size = 2});
          EXPECT(third.helper().name() == "adaptdl-dataloader-epoch0-0");
          int loop = 0;
          for (auto* const loader : {&first, &second, &first, &third}) {
            for (auto& batch : *loader) {
              job.note(fmt::format("{}:{}", loop, samples_of(batch)[0]));
              if (code != 0 && job.notes().size() == stop_at) kill(getpid(), SIGTERM);
            }
            ++loop;
          }
        }
      });
    }
    std::vector<std::string> expected;
    for (const int samples : {8, 10, 8, 6}) {
      const auto loop = expected.empty() ? 0 : std::stoi(expected.back()) + 1;
      for (int i = 0; i < samples; i += 2) expected.push_back(fmt::format("{}:{}", loop, i));
    }
    CHECK(job.notes() == expected);
  }
}

TEST_CASE("a loop left by break does not run again after a restart") {
  const ElasticJob job;
  for (const int code : {kCheckpointed, 0}) {
    job.run_to(code, 2, [&](int rank) {
      Loader first(Numbers(20), {.batch_size = 2}), second(Numbers(20), {.batch_size = 2});
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        for (auto& batch : first) {
          if (rank == 0) job.note(fmt::format("first {}", samples_of(batch)[0]));
          if (samples_of(batch)[0] >= 2) break;
        }
        for (auto& batch : second) {
          if (rank == 0) job.note(fmt::format("second {}", samples_of(batch)[0]));
          if (code != 0 && samples_of(batch)[0] >= 4) kill(getpid(), SIGTERM);
        }
      }
    });
  }
  const auto notes = job.notes();
  CHECK(std::count(notes.begin(), notes.end(), "first 0") == 1);
  CHECK(std::count(notes.begin(), notes.end(), "first 2") == 1);
  CHECK(std::count_if(notes.begin(), notes.end(), [](const auto& note) { return note.starts_with("first"); }) == 2);
  for (int i = 0; i < 20; i += 2) CHECK(std::count(notes.begin(), notes.end(), fmt::format("second {}", i)) == 1);
  CHECK(says(job.errors(), "skipping loop 0 of epoch 0 (adaptdl-dataloader-epochnone-0)"));
}

TEST_CASE("the local batch size adapts to the number of replicas") {
  const ElasticJob job;
  std::size_t run = 0;
  for (const int replicas : {1, 4, 2}) {
    job.run_to(run < 2 ? kCheckpointed : 0, replicas, [&](int rank) {
      Loader loader(Numbers(100), {.batch_size = 10});
      EXPECT(loader.size() == (replicas == 4 ? 9u : 10u));
      std::size_t batches = 0;
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        for (auto& batch : loader) {
          const bool short_last = run == 2 && batches == 2;
          EXPECT(short_last || batch.data.numel() == (replicas == 1 ? 10 : replicas == 4 ? 3 : 5));
          if (++batches == (run == 0 ? 2u : 3u) && rank == 0 && run < 2) kill(getpid(), SIGTERM);
          // The first batch of a run is returned before any stop can have been requested.
          if (batches == 1) job.note(fmt::format("{} {}", run, *loader.helper().current_index()));
        }
      }
    });
    ++run;
  }
  const auto notes = job.notes();
  const std::set<std::string> first(notes.begin(), notes.end());
  // A stop that is requested in a step is submitted at the next boundary and decided at the one after it, so one more
  // step runs.
  CHECK(first == std::set<std::string>{"0 0", "1 30", "2 78"});
}

TEST_CASE("resuming with a dataset of another size fails and names the loader and both sizes") {
  const ElasticJob job;
  job.run_to(kCheckpointed, 1, [](int) {
    Loader loader(Numbers(1437), {.batch_size = 10});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      for ([[maybe_unused]] auto& batch : loader) kill(getpid(), SIGTERM);
    }
  });
  job.run_to(1, 2, [](int) {
    Loader loader(Numbers(1000), {.batch_size = 10});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      for ([[maybe_unused]] auto& batch : loader) continue;
    }
  });
  CHECK(says(job.errors(),
             "data loader 'adaptdl-dataloader-epochnone-0' cannot resume in the middle of its dataset, which had 1437 "
             "samples when the checkpoint was saved, but has 1000 now"));
}

TEST_CASE("a custom loader resumes at its index and keeps its end index") {
  const ElasticJob job;
  for (const int code : {kCheckpointed, 0}) {
    job.run_to(code, 2, [&](int rank) {
      AdaptiveDataLoaderHelper helper(10);
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        for (int loop = 0; loop < 2; ++loop) {
          auto context = helper.context();
          if (helper.skipdone()) continue;
          EXPECT(helper.sync_local_bsz() == 5);
          if (helper.end_index() == 0) helper.set_end_index(static_cast<std::size_t>(100 * (loop + 1)));
          while (*helper.current_index() < helper.end_index()) {
            helper.step_boundary();
            if (rank == 0) job.note(fmt::format("{}:{}", loop, *helper.current_index()));
            if (code != 0 && loop == 1 && *helper.current_index() == 50) kill(getpid(), SIGTERM);
            helper.advance();
          }
        }
      }
    });
  }
  std::vector<std::string> expected;
  for (int index = 0; index < 100; index += 10) expected.push_back(fmt::format("0:{}", index));
  for (int index = 0; index < 200; index += 10) expected.push_back(fmt::format("1:{}", index));
  CHECK(job.notes() == expected);
}

TEST_CASE("an index past the end of the dataset is rejected") {
  ElasticJob().run_to(0, 1, [](int) {
    AdaptiveDataLoaderHelper helper(10, "mine");
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      auto context = helper.context();
      helper.set_current_index(2000);
      std::string message;
      try {
        helper.check_dataset(1000);
      } catch (const adaptdl::Error& error) {
        message = error.what();
      }
      EXPECT(says(message,
                  "data loader 'adaptdl-dataloader-epochnone-mine' cannot resume at sample 2000 of a dataset of 1000 "
                  "samples"));
    }
  });
}

namespace {

// A note of one batch: its position, and its samples.
struct Note {
  explicit Note(const std::string& line) {
    std::istringstream text(line);
    text >> run >> rank >> replicas >> epoch >> pass >> accumulated >> optim;
    for (std::size_t sample = 0; text >> sample;) samples.push_back(sample);
  }
  int run = 0, rank = 0, replicas = 0, epoch = 0, pass = 0, accumulated = 0, optim = 0;
  std::vector<std::size_t> samples;
};

constexpr std::size_t kAccumulatedSamples = 90;
constexpr int kAccumulatedEpochs = 2;

// Trains with accumulation on 1 to 4 replicas, one of which stops the job at a random step of each run, until no step
// is left.
void train_with_restarts(const ElasticJob& job, unsigned seed) {
  std::mt19937 random(seed);
  bool finished = false;
  for (int run = 0; !finished; ++run) {
    REQUIRE(run < 60);
    const int replicas = 1 + run % 4;
    const int victim = static_cast<int>(random() % static_cast<unsigned>(replicas));
    const auto batches = random() % 40;
    const auto codes = job.run(replicas, [&](int rank) {
      Loader loader(Numbers(kAccumulatedSamples),
                    {.batch_size = 10, .shuffle = true, .workers = run % 3, .seed = seed});
      loader.autoscale_batch_size(100, {}, true);
      adaptdl::internal::set_batch_size_decider([](std::uint64_t step) -> std::optional<std::pair<std::size_t, int>> {
        if (step % 4 != 1) return {};
        return std::pair{static_cast<std::size_t>(1 + step * 7 % 9), static_cast<int>(step % 3)};
      });
      std::size_t batch_number = 0;
      for (const int epoch : remaining_epochs_until(kAccumulatedEpochs)) {
        for (auto& batch : loader) {
          const auto& helper = loader.helper();
          if (batch_number++ == batches && rank == victim) kill(getpid(), SIGTERM);
          auto note = fmt::format("{} {} {} {} {} {} {}", run, rank, replicas, epoch,
                                  *helper.current_index() / kAccumulatedSamples, helper.accumulated(),
                                  helper.is_optim_step() ? 1 : 0);
          for (const auto sample : samples_of(batch)) note += fmt::format(" {}", sample);
          job.note(note);
          if (helper.is_optim_step()) adaptdl::metrics::set_progress("model", adaptdl::metrics::progress() + 0.25);
        }
      }
    });
    finished = codes == std::vector<int>(static_cast<std::size_t>(replicas), 0);
    if (!finished) REQUIRE(codes == std::vector<int>(static_cast<std::size_t>(replicas), kCheckpointed));
  }
}

}  // namespace

TEST_CASE("restarts with accumulation on 1 to 4 replicas lose no sample and split no step" *
          doctest::test_suite("slow")) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    const ElasticJob job;
    train_with_restarts(job, seed);
    std::map<std::pair<int, int>, std::map<std::size_t, int>> times;  // epoch, pass -> sample -> times
    std::map<std::pair<int, int>, int> replicas_at_end;
    std::map<int, std::pair<int, int>> steps_of_run;  // number of steps that began and ended on rank 0
    std::map<int, int> passes;                        // by epoch
    for (const auto& line : job.notes()) {
      const Note note(line);
      const std::pair pass{note.epoch, note.pass};
      for (const auto sample : note.samples) ++times[pass][sample];
      replicas_at_end[pass] = note.replicas;
      passes[note.epoch] = std::max(passes[note.epoch], note.pass);
      if (note.rank == 0) steps_of_run[note.run].first += note.accumulated == 0 ? 1 : 0;
      if (note.rank == 0) steps_of_run[note.run].second += note.optim;
    }
    int steps = 0;
    for (const auto& [run, begun_ended] : steps_of_run) {
      CHECK(begun_ended.first == begun_ended.second);
      steps += begun_ended.second;
    }
    CHECK(steps == kAccumulatedEpochs * static_cast<int>(kAccumulatedSamples) / 10 * 4);
    for (const auto& [pass, samples] : times) {
      std::size_t total = 0;
      for (const auto& [sample, count] : samples) total += static_cast<std::size_t>(count);
      CHECK(total < samples.size() + static_cast<std::size_t>(replicas_at_end[pass]));
      if (pass.second < passes[pass.first]) CHECK(samples.size() == kAccumulatedSamples);
    }
    CHECK(times.size() > 2 * kAccumulatedEpochs);
  }
}

}  // namespace restart_test
