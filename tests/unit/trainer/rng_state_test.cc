#include "support/rng_state.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "adaptdl/checkpoint.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/process_group.h"
#include "adaptdl/torch/summary_writer.h"
#include "elastic_job.h"
#include "numbers.h"
#include "replica_processes.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace rng_state_test {

namespace {

using adaptdl::AdaptiveDataLoader;
using adaptdl::remaining_epochs_until;
using testing::ElasticJob;
using testing::Numbers;
using Loader = AdaptiveDataLoader<Numbers>;

constexpr int kCheckpointed = 143;

// Draws several numbers from the default generator, by dropout and randn, and returns the results with all their bits.
std::string draw() {
  const auto dropped = torch::dropout(torch::ones({7}), 0.5, true).sum().item<double>();
  return fmt::format("{:a} {:a}", torch::randn({1}, torch::kDouble).item<double>(), dropped);
}

// A program that draws at every step of two loops per epoch, between the loops, and before them, as the initialization
// of a model does. Notes what rank r draws at each step as "r epoch loop index numbers". Rank 0 interrupts the job at
// its step `stop_at`.
void drawing_program(const ElasticJob& job, int rank, std::size_t stop_at) {
  torch::manual_seed(42);
  draw();
  Loader first(Numbers(40), {.batch_size = 6, .shuffle = true, .workers = 2}), second(Numbers(18), {.batch_size = 6});
  std::size_t step = 0;
  for (int epoch : remaining_epochs_until(2)) {
    draw();
    int loop = 0;
    for (auto* const loader : {&first, &second}) {
      for ([[maybe_unused]] auto& batch : *loader) {
        job.note(fmt::format("{} {} {} {} {}", rank, epoch, loop, *loader->helper().current_index(), draw()));
        if (rank == 0 && step++ == stop_at) kill(getpid(), SIGTERM);
      }
      draw();
      ++loop;
    }
  }
}

std::vector<std::string> sorted_notes(const ElasticJob& job) {
  auto notes = job.notes();
  std::sort(notes.begin(), notes.end());
  return notes;
}

}  // namespace

TEST_CASE("restarts on the same number of replicas do not change the random numbers drawn" *
          doctest::test_suite("slow")) {
  std::mt19937 random(1);
  for (int replicas = 1; replicas <= 3; ++replicas) {
    const ElasticJob whole, interrupted;
    whole.run_to(0, replicas, [&](int rank) { drawing_program(whole, rank, 1000); });
    int restarts = 0;
    for (bool finished = false; !finished; ++restarts) {
      const auto stop_at = random() % 4;
      const auto codes = interrupted.run(replicas, [&](int rank) { drawing_program(interrupted, rank, stop_at); });
      finished = codes[0] == 0;
      if (!finished) REQUIRE(codes == std::vector<int>(static_cast<std::size_t>(replicas), kCheckpointed));
    }
    CHECK(restarts >= 5);
    CHECK(sorted_notes(whole) == sorted_notes(interrupted));
    CHECK(whole.notes().size() == static_cast<std::size_t>(replicas) * 2 * (7 + 3));
  }
}

TEST_CASE("rank 0 draws the same numbers as plain LibTorch, and other ranks draw different ones") {
  const ElasticJob job;
  job.run_to(0, 3, [&](int rank) {
    torch::manual_seed(9);
    Loader loader(Numbers(3), {.batch_size = 3});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      for ([[maybe_unused]] auto& batch : loader) job.note(fmt::format("{} {}", rank, draw()));
    }
    torch::manual_seed(9);
    if (rank == 0) job.note(fmt::format("0 {}", draw()));
  });
  auto notes = job.notes();
  CHECK(notes.size() == 4);
  CHECK(std::set<std::string>(notes.begin(), notes.end()).size() == 3);  // the two of rank 0 are equal
  for (auto& note : notes) note = note.substr(2);
  CHECK(std::set<std::string>(notes.begin(), notes.end()).size() == 3);
}

TEST_CASE("new replicas draw their own numbers, determined by the checkpoint") {
  const ElasticJob job;
  std::vector<std::string> notes;
  job.run_to(kCheckpointed, 2, [&](int rank) { drawing_program(job, rank, 2); });
  for (int trial = 0; trial < 2; ++trial) {
    const ElasticJob copy;
    std::filesystem::copy(job.checkpoints(), copy.checkpoints(), std::filesystem::copy_options::recursive);
    copy.run_to(0, 4, [&](int rank) { drawing_program(copy, rank, 1000); });
    if (trial == 0) {
      notes = sorted_notes(copy);
    } else {
      CHECK(sorted_notes(copy) == notes);
    }
  }
  std::set<std::string> drawn;
  for (const auto& note : notes) drawn.insert(note.substr(note.find("0x") == std::string::npos ? 0 : note.find("0x")));
  CHECK(drawn.size() == notes.size());
}

TEST_CASE("the checkpoint stores every rank's generator, and rank 0 restores its own on fewer replicas") {
  const ElasticJob job;
  job.run_to(kCheckpointed, 3, [&](int rank) { drawing_program(job, rank, 3); });
  const auto checkpoints = adaptdl::checkpoint::list(job.checkpoints());
  REQUIRE(checkpoints.size() == 1);
  const auto& states = checkpoints[0].manifest->states;
  const auto rng =
      std::find_if(states.begin(), states.end(), [](const auto& state) { return state.name == "adaptdl-rng"; });
  REQUIRE(rng != states.end());
  CHECK(rng->files.size() == 4);
  const ElasticJob three, one;
  for (const auto* const copy : {&three, &one}) {
    std::filesystem::copy(job.checkpoints(), copy->checkpoints(), std::filesystem::copy_options::recursive);
    copy->run_to(0, copy == &three ? 3 : 1, [&](int rank) { drawing_program(*copy, rank, 1000); });
  }
  const auto first_of_rank_0 = [](const ElasticJob& of) {
    for (const auto& note : of.notes()) {
      if (note.starts_with("0 ")) return note;
    }
    return std::string();
  };
  CHECK(first_of_rank_0(three) == first_of_rank_0(one));
}

TEST_CASE("running a finished job again preserves all its states, including the generators") {
  const auto program = [](const ElasticJob& job, int epochs) {
    return [&job, epochs](int rank) {
      job.prepare();
      torch::manual_seed(42);
      adaptdl::init_process_group("gloo");
      std::optional<adaptdl::SummaryWriter> writer;
      if (rank == 0) writer.emplace(job.path() / "events");
      Loader loader(Numbers(12), {.batch_size = 6});
      for (int epoch : remaining_epochs_until(epochs)) {
        for ([[maybe_unused]] auto& batch : loader) job.note(fmt::format("{} {} {}", rank, epoch, draw()));
        if (writer) writer->add_scalar("loss", 1, epoch);
      }
      adaptdl::checkpoint::save_all_states();
      adaptdl::destroy_process_group();
    };
  };
  const ElasticJob once, again;
  testing::expect_replicas(2, program(once, 1));
  testing::expect_replicas(2, program(again, 1));
  testing::expect_replicas(2, program(again, 1));
  CHECK(again.errors().find("was not loaded by this program") == std::string::npos);
  for (const auto* const job : {&once, &again}) testing::expect_replicas(2, program(*job, 2));
  CHECK(sorted_notes(once).size() == 8);
  CHECK(sorted_notes(again) == sorted_notes(once));
}

}  // namespace rng_state_test
