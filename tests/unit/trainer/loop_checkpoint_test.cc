// Tests the checkpoints that loops save, on a signal and periodically, and how a job ends. Each replica is a process,
// each interruption a real signal, and each checkpoint is on disk.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/collective.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "elastic_job.h"
#include "loop/process_exit.h"
#include "numbers.h"
#include "replica_processes.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

#include "error_of.h"

namespace loop_checkpoint_test {

namespace {

using namespace std::chrono_literals;
using adaptdl::AdaptiveDataLoader;
using adaptdl::remaining_epochs_until;
using testing::ElasticJob;
using testing::kCheckpointed;
using testing::Numbers;
using testing::samples_of;
using Loader = AdaptiveDataLoader<Numbers>;
using ::testing::error_of;
using ::testing::says;

}  // namespace

TEST_CASE("a signal to one replica stops all replicas at the same step, with a checkpoint and exit code 143" *
          doctest::test_suite("slow")) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 12; ++trial) {
    const int replicas = 1 + trial % 4;
    const int victim = static_cast<int>(random() % static_cast<unsigned>(replicas));
    const int number = trial % 2 == 0 ? SIGTERM : SIGINT;
    const auto delay = std::chrono::microseconds(random() % 30000);
    CAPTURE(trial);
    const ElasticJob job;
    const auto codes = job.run(replicas, [&](int rank) {
      std::atomic<std::size_t> steps = 0;
      adaptdl::internal::set_exit_handler([&](int code) {
        job.note(std::to_string(steps));
        _exit(code);
      });
      Loader first(Numbers(60), {.batch_size = 4}), second(Numbers(40), {.batch_size = 4, .workers = 2});
      std::thread killer;
      for ([[maybe_unused]] int epoch : remaining_epochs_until(100000)) {
        for (auto* const loader : {&first, &second}) {
          for ([[maybe_unused]] auto& batch : *loader) {
            if (++steps == 1 && rank == victim) {
              killer = std::thread([&] {
                std::this_thread::sleep_for(delay);
                kill(getpid(), number);
              });
            }
            std::this_thread::sleep_for(std::chrono::microseconds(rank * 100));
          }
        }
      }
    });
    CHECK(codes == std::vector<int>(static_cast<std::size_t>(replicas), kCheckpointed));
    const auto notes = job.notes();
    REQUIRE(notes.size() == static_cast<std::size_t>(replicas));
    CHECK(std::set<std::string>(notes.begin(), notes.end()).size() == 1);
    CHECK(job.count_checkpoints() == 1);
    CHECK(adaptdl::checkpoint::newest_whole(job.checkpoints()));
    CHECK(says(job.errors(), number == SIGINT ? "stopping on SIGINT" : "stopping on SIGTERM"));
  }
}

TEST_CASE("without a checkpoint path, a signal ends the job with a warning and the signal's exit code") {
  for (const int number : {SIGINT, SIGTERM}) {
    const ElasticJob job;
    const auto codes = testing::run_replicas(2, [&](int rank) {
      job.prepare();
      unsetenv("ADAPTDL_CHECKPOINT_PATH");
      adaptdl::collective::initialize();
      Loader loader(Numbers(100), {.batch_size = 2});
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        for ([[maybe_unused]] auto& batch : loader) {
          if (rank == 1) kill(getpid(), number);
          break;
        }
        for ([[maybe_unused]] auto& batch : loader) continue;
      }
    });
    CHECK(codes == std::vector<int>(2, 128 + number));
    CHECK(says(job.errors(), "nothing was saved: ADAPTDL_CHECKPOINT_PATH is not set"));
    CHECK(job.count_checkpoints() == 0);
  }
}

TEST_CASE("if saving a requested checkpoint fails, every replica fails") {
  const ElasticJob job;
  const auto codes = job.run(2, [&](int rank) {
    Loader loader(Numbers(100), {.batch_size = 2});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      for ([[maybe_unused]] auto& batch : loader) {
        if (rank != 0) continue;
        std::filesystem::remove_all(job.checkpoints());
        std::ofstream(job.checkpoints()) << "in the way";
        kill(getpid(), SIGTERM);
      }
    }
  });
  CHECK(codes == std::vector<int>{1, 1});
  CHECK(says(job.errors(), "replica 0: no checkpoint was saved"));
  CHECK(says(job.errors(), "replica 1: no checkpoint was saved"));
}

TEST_CASE("periodic checkpoints follow the configured interval, and a job resumes from them after a crash" *
          doctest::test_suite("slow")) {
  const ElasticJob job;
  const auto program = [&](bool crash) {
    return [&job, crash](int rank) {
      Loader loader(Numbers(400), {.batch_size = 4});
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        for (auto& batch : loader) {
          if (rank == 0) job.note(std::to_string(samples_of(batch)[0]));
          std::this_thread::sleep_for(4ms);
          if (crash && rank == 0 && samples_of(batch)[0] >= 320) kill(getpid(), SIGKILL);
        }
      }
    };
  };
  setenv("ADAPTDL_CHECKPOINT_EVERY", "100ms", 1);
  const auto start = std::chrono::steady_clock::now();
  const auto codes = job.run(2, program(true));
  const auto passed = std::chrono::steady_clock::now() - start;
  CHECK(codes == std::vector<int>{137, 1});
  const auto newest = adaptdl::checkpoint::newest_whole(job.checkpoints());
  REQUIRE(newest);
  // Checkpoints are numbered from 0. There are at most as many as intervals elapsed, and more than one.
  CHECK(newest->number + 1 <= static_cast<std::uint64_t>(passed / 100ms));
  CHECK(newest->number >= 1);
  const auto index = newest->manifest->progress.at("samples").get<std::size_t>();
  CHECK(index > 0);
  CHECK(newest->manifest->progress.at("epoch") == 0);
  CHECK(newest->manifest->progress.at("dataset_size") == 400);
  const auto noted = job.notes().size();
  job.run_to(0, 2, program(false));
  unsetenv("ADAPTDL_CHECKPOINT_EVERY");
  CHECK(job.notes().at(noted) == std::to_string(index));
  CHECK(job.notes().back() == "396");
}

TEST_CASE("a failed periodic checkpoint causes a warning, and a failed final checkpoint an error") {
  const ElasticJob job;
  setenv("ADAPTDL_CHECKPOINT_EVERY", "1ms", 1);
  job.run_to(0, 2, [&](int rank) {
    Loader loader(Numbers(40), {.batch_size = 4});
    std::size_t batches = 0;
    const auto train = [&] {
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        for ([[maybe_unused]] auto& batch : loader) {
          if (rank == 0) std::ofstream(job.checkpoints()) << "in the way";
          std::this_thread::sleep_for(2ms);
          ++batches;
        }
      }
    };
    EXPECT(says(error_of<adaptdl::checkpoint::CheckpointError>(train), "checkpoints' is not a directory"));
    EXPECT(batches == 10);
  });
  unsetenv("ADAPTDL_CHECKPOINT_EVERY");
  CHECK(says(job.errors(), "warning: the periodic checkpoint failed: no checkpoint was saved"));
}

TEST_CASE("when a replica dies, the others fail") {
  const ElasticJob job;
  const auto codes = job.run(3, [](int rank) {
    Loader loader(Numbers(3000), {.batch_size = 3});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      std::size_t step = 0;
      for ([[maybe_unused]] auto& batch : loader) {
        if (rank == 1 && ++step == 5) kill(getpid(), SIGKILL);
        std::this_thread::sleep_for(1ms);
      }
    }
  });
  CHECK(codes == std::vector<int>{1, 137, 1});
}

}  // namespace loop_checkpoint_test
