// Tests event files across exits and restarts: no event is lost or logged twice, and only rank 0 writes. Each replica
// is a process.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/summary_writer.h"
#include "elastic_job.h"
#include "event_records.h"
#include "loop/process_exit.h"
#include "numbers.h"
#include "summary_writer_support.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace summary_restart_test {

namespace {

namespace fs = std::filesystem;
using adaptdl::SummaryWriter;
using adaptdl::SummaryWriterOptions;
using summary_writer_support::kNever;
using testing::Event;
using testing::events_of;
using testing::files_in;

// Returns the step from which a file discards earlier events; nullopt if it discards none. TensorBoard ignores the
// first session of a file.
std::optional<std::int64_t> session_of(const std::vector<Event>& events) {
  if (events.size() < 3 || !events[1].starts_session || !events[2].starts_session) return std::nullopt;
  CHECK(events[1].step == std::numeric_limits<std::int64_t>::max());
  return events[2].step;
}

}  // namespace

TEST_CASE("a resumed file starts a session at the first replayed step, so nothing is logged twice") {
  const testing::ElasticJob job;
  const auto directory = job.path() / "events";
  // Only rank 0 has a writer, as in many programs.
  const auto program = [&](int stop_at) {
    return [&, stop_at](int rank) {
      std::optional<SummaryWriter> writer;
      if (rank == 0) writer.emplace(directory, SummaryWriterOptions{.flush_every = kNever});
      adaptdl::AdaptiveDataLoader loader(testing::Numbers(40), {.batch_size = 4});
      std::int64_t step = 0;
      for ([[maybe_unused]] int epoch : adaptdl::remaining_epochs_until(1)) {
        for (auto& batch : loader) {
          step = testing::samples_of(batch).front() / 4;
          if (writer) writer->add_scalar("step", static_cast<double>(step), step);
          if (step == stop_at) kill(getpid(), SIGTERM);
        }
      }
    };
  };
  job.run_to(143, 2, program(3));
  const auto stopped = events_of(files_in(directory).at(0));
  REQUIRE(stopped.size() >= 5);  // the version and a scalar per step; an exit at a boundary loses none
  CHECK(stopped.back().scalar == static_cast<float>(stopped.size() - 2));
  job.run_to(0, 2, program(-1));
  const auto resumed = events_of(files_in(directory).at(1));
  CHECK(resumed.at(0).version == "brain.Event:2");
  CHECK(session_of(resumed) == stopped.back().step + 1);
  CHECK(resumed.at(3).step == stopped.back().step + 1);
  CHECK(resumed.back().step == 9);
  CHECK_FALSE(session_of(stopped));
}

TEST_CASE("steps logged after the last checkpoint are discarded when a killed job resumes") {
  const testing::ElasticJob job;
  const auto directory = job.path() / "events";
  CHECK(job.run(1, [&](int) {
    SummaryWriter writer(directory, {.flush_every = kNever});
    writer.add_scalar("a", 1, 9);
    adaptdl::checkpoint::save_all_states();
    writer.add_scalar("a", 2, 10);
    kill(getpid(), SIGKILL);
  }) == std::vector<int>{128 + SIGKILL});
  const auto killed = events_of(files_in(directory).at(0));
  CHECK(killed.size() == 2);  // the checkpoint writes pending events; later ones are lost
  job.run_to(0, 1, [&](int) {
    SummaryWriter writer(directory);
    SummaryWriter again(directory), elsewhere(job.path() / "others");
  });
  const auto first = events_of(files_in(directory).at(1)), second = events_of(files_in(directory).at(2));
  CHECK(session_of(first) == 10);
  CHECK(second.size() == 1);  // continues after the first writer of this process
  CHECK(events_of(files_in(job.path() / "others").at(0)).size() == 1);
}

TEST_CASE("events repeated by a resumed program appear only once") {
  const testing::ElasticJob job;
  const auto directory = job.path() / "\xff$float";
  // The job is interrupted during validation, after it has logged the training loss of the epoch.
  const auto program = [&](bool stop) {
    return [&, stop](int) {
      SummaryWriter writer(directory);
      writer.add_text("$float", "options", 0);
      adaptdl::AdaptiveDataLoader training(testing::Numbers(8), {.batch_size = 4}),
          validation(testing::Numbers(40), {.batch_size = 4});
      for (const int epoch : adaptdl::remaining_epochs_until(2)) {
        for ([[maybe_unused]] auto& batch : training) writer.add_scalar("\xff", 1, 0);
        writer.add_scalar("loss", epoch, epoch);
        for ([[maybe_unused]] auto& batch : validation) {
          if (stop && epoch == 1) kill(getpid(), SIGTERM);
        }
        writer.add_scalar("accuracy", epoch, epoch);
      }
    };
  };
  job.run_to(143, 1, program(true));
  job.run_to(0, 1, program(false));
  std::map<std::string, std::vector<std::int64_t>> steps;
  for (const auto& file : files_in(directory)) {
    for (const auto& event : events_of(file)) {
      if (!event.tag.empty()) steps[event.tag].push_back(event.step);
    }
  }
  CHECK(steps["$float"] == std::vector<std::int64_t>{0});
  CHECK(steps["loss"] == std::vector<std::int64_t>{0, 1});
  CHECK(steps["accuracy"] == std::vector<std::int64_t>{0, 1});
  CHECK(steps["\xef\xbf\xbd"] == std::vector<std::int64_t>(4));  // all at step 0; no batch is logged twice
}

TEST_CASE("a job restarted without a checkpoint discards earlier events, and purge_step takes precedence") {
  const testing::ElasticJob job;
  const auto first_events = [&](const char* name, const char* restarts, SummaryWriterOptions options) {
    const auto directory = job.path() / name;
    job.run_to(0, 1, [&](int) {
      setenv("ADAPTDL_NUM_RESTARTS", restarts, 1);
      SummaryWriter writer(directory, options);
    });
    return events_of(files_in(directory).at(0));
  };
  CHECK(first_events("new", "0", {}).size() == 1);
  CHECK(session_of(first_events("restarted", "1", {})) == 0);
  CHECK(session_of(first_events("asked", "1", {.purge_step = 7})) == 7);
}

TEST_CASE("an exit without destructors loses no events") {
  const testing::ElasticJob job;
  const auto directory = job.path() / "events";
  job.run_to(3, 1, [&](int) {
    SummaryWriter writer(directory, {.flush_every = kNever});
    writer.add_scalar("a", 1, 1);
    adaptdl::internal::exit_process(3);
  });
  CHECK(events_of(files_in(directory).at(0)).size() == 2);
}

TEST_CASE("only rank 0 writes events unless all_ranks is set") {
  const testing::ElasticJob job;
  job.run_to(0, 2, [&](int rank) {
    SummaryWriter writer(job.path() / ("rank" + std::to_string(rank)));
    SummaryWriter all(job.path() / ("all" + std::to_string(rank)), {.all_ranks = true});
    for (auto* each : {&writer, &all}) {
      each->add_scalar("a", 1, 1);
      each->add_text("b", "text", 1);
      each->add_histogram("c", std::vector<double>{1, 2}, 1);
      each->add_hparams({{"lr", 0.1}}, {{"loss", 0.2}});
      each->flush();
    }
  });
  CHECK(files_in(job.path() / "rank0").size() == 1);
  CHECK_FALSE(fs::exists(job.path() / "rank1"));
  CHECK(events_of(files_in(job.path() / "all1").at(0)).size() == 8);
}

}  // namespace summary_restart_test
