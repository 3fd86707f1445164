// A replica of an elastic job for tests of schedulers. Its steps take a modelled time, during which the process sleeps.
//
//   modelled_job --samples N [--batch B] [--step-ms T] [--sync-ms S] [--slowdown F] [--live 1] [--until FILE]
//
// A step trains on B samples (default: 64), shared evenly among the replicas, and takes T milliseconds (default: 800)
// on one replica, or T/n + S milliseconds (default of S: 5) on n > 1 replicas. The job ends after N samples or, with
// --until, once FILE exists. Rank 0 posts hints with this step time multiplied by F (default: 1), so that the job seems
// to take longer than the test.
//
// modelled_job_record.h describes the files in which the job records the samples that it trained on.
//
// With --live 1, the job follows generations: its replicas change while it is running.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "adaptdl/checkpoint.h"
#include "adaptdl/collective.h"
#include "adaptdl/env.h"
#include "adaptdl/generation.h"
#include "adaptdl/log.h"
#include "adaptdl/progress.h"
#include "adaptdl/sched_hints.h"
#include "adaptdl/signal.h"
#include "adaptdl/supervisor.h"
#include "modelled_job_record.h"

namespace {

using namespace adaptdl;
using namespace modelled_job_record;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kStopped = 143;
constexpr int kStepsToProfile = 3;
constexpr std::chrono::seconds kHintsPeriod{2};
constexpr std::chrono::seconds kDiscoverAttempt{5};
constexpr std::chrono::minutes kDiscoverTimeout{10};

struct Options {
  std::int64_t samples = 0;
  std::int64_t batch = 64;
  std::int64_t step_ms = 800;
  std::int64_t sync_ms = 5;
  std::int64_t slowdown = 1;
  std::int64_t live = 0;
  std::string until;
};

Options parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, std::int64_t*> numbers = {
      {"--samples", &options.samples}, {"--batch", &options.batch},       {"--step-ms", &options.step_ms},
      {"--sync-ms", &options.sync_ms}, {"--slowdown", &options.slowdown}, {"--live", &options.live}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string word = argv[i];
    if (word == "--until") {
      options.until = argv[i + 1];
    } else if (const auto number = numbers.find(word); number != numbers.end()) {
      *number->second = std::stoll(argv[i + 1]);
    } else {
      throw UsageError(fmt::format("unknown option '{}'", word));
    }
  }
  if (argc % 2 == 0 || options.samples < 1 || options.batch < 1)
    throw UsageError(
        "usage: modelled_job --samples N [--batch B] [--step-ms T] [--sync-ms S] [--slowdown F] [--live 1] [--until "
        "FILE]");
  return options;
}

// Posts hints every few seconds on a separate thread, so that an unreachable supervisor does not delay steps. The
// object is never destroyed, so that the process exits without waiting for a request in progress.
class Hints {
 public:
  explicit Hints(const Options& options) : options_(options) {}

  void set(std::int64_t samples, int profiled_replicas) {
    samples_ = samples;
    profiled_replicas_ = profiled_replicas;
    if (!started_ && profiled_replicas > 0 && env::supervisor_url() && env::job_id()) {
      started_ = true;
      std::thread([this] { run(); }).detach();
    }
  }

 private:
  [[noreturn]] void run() const {
    for (;;) {
      try {
        post_sched_hints(hints(), *env::job_id());
      } catch (const std::exception& error) {
        log::warn(error.what());
      }
      std::this_thread::sleep_for(kHintsPeriod);
    }
  }

  json hints() const {
    const auto batch = static_cast<double>(options_.batch);
    const double step = 1e-3 * static_cast<double>(options_.step_ms * options_.slowdown);
    const double sync = 1e-3 * static_cast<double>(options_.sync_ms * options_.slowdown);
    return {{"liveRescale", generation::follows()},
            {"initBatchSize", options_.batch},
            {"maxBatchSize", options_.batch},
            {"localBszBounds", {1, options_.batch}},
            {"gradientAccumulation", false},
            {"gradParams", {{"norm", 1.0}, {"var", 1000.0}}},
            {"perfParams",
             {{"alpha_c", 1e-6},
              {"beta_c", step / batch},
              {"alpha_n", sync},
              {"beta_n", 1e-6},
              {"alpha_r", sync},
              {"beta_r", 1e-6},
              {"gamma", 1.0}}},
            {"maxProfiledReplicas", profiled_replicas_.load()},
            {"progress", static_cast<double>(samples_.load()) / batch},
            {"targetProgress", static_cast<double>(options_.samples) / batch}};
  }

  const Options options_;
  bool started_ = false;
  std::atomic<std::int64_t> samples_ = 0;
  std::atomic<int> profiled_replicas_ = 0;
};

bool stop_requested() { return signal::stop_signal() != 0; }

// Returns nullopt if a stop is requested. Errors are retried, because a restarting supervisor may be unreachable or not
// know the job yet.
std::optional<std::string> find_master() {
  const auto url = env::supervisor_url();
  if (!url) return env::master_addr();
  const auto deadline = Clock::now() + kDiscoverTimeout;
  while (!stop_requested()) {
    try {
      return supervisor::discover(*url, env::job_id().value_or(""), env::num_restarts(), kDiscoverAttempt).at(0);
    } catch (const UsageError&) {
      throw;
    } catch (const Error& error) {
      if (Clock::now() > deadline) throw;
      log::warn(error.what());
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  }
  return {};
}

std::chrono::milliseconds step_time(const Options& options) {
  const int replicas = env::num_replicas();
  return std::chrono::milliseconds(options.step_ms / replicas + (replicas > 1 ? options.sync_ms : 0));
}

// Reports to the launcher of a local run that this replica is training.
void report_generation() {
  progress::event(
      "generation",
      {{"generation", generation::current()}, {"rank", env::replica_rank()}, {"replicas", env::num_replicas()}});
}

// The progress of this replica: the number of steps that the job has completed.
class Position {
 public:
  void set_steps(std::uint64_t steps) { steps_ = steps; }
  void step() { ++steps_; }
  // Forms the next generation. Returns false if this replica is not in it.
  bool follow(generation::Generation next) {
    while (next.has_me()) {
      try {
        set_steps(generation::form(next, {steps_, {{"trained", steps_}}}).furthest.boundaries);
        report_generation();
        return true;
      } catch (const collective::CollectiveError& error) {
        log::warn(error.what());
        next = generation::await_next();
      }
    }
    return false;
  }

 private:
  std::uint64_t steps_ = 0;
};

int train(const Options& options, Trained& trained, Position& position) {
  static auto* const hints = new Hints(options);
  auto last_saved = Clock::now();
  int steps = 0;  // with these replicas
  const auto target = [&] { return trained.sums.count >= options.samples; };
  bool finished = target();
  while (!finished) {
    const int rank = env::replica_rank(), replicas = env::num_replicas();
    const std::int64_t from = trained.sums.count, size = std::min(options.batch, options.samples - from);
    std::this_thread::sleep_for(step_time(options));
    Sums mine;
    mine.add(from + size * rank / replicas, from + size * (rank + 1) / replicas);
    const bool save =
        rank == 0 && env::checkpoint_every().count() > 0 && Clock::now() - last_saved >= env::checkpoint_every();
    const bool end = rank == 0 && !options.until.empty() && std::filesystem::exists(options.until);
    const auto announced = rank == 0 && generation::follows() ? generation::announced() : std::nullopt;
    json agreed;
    try {
      agreed = collective::allreduce(json{{"count", mine.count},
                                          {"indices", mine.indices},
                                          {"squares", mine.squares},
                                          {"save", save || signal::take_save_request() ? 1 : 0},
                                          {"end", end ? 1 : 0},
                                          {"stop", stop_requested() ? 1 : 0},
                                          {"generation", announced ? announced->number : 0}});
    } catch (const collective::CollectiveError& error) {
      if (!generation::follows()) throw;
      log::warn(error.what());
      if (!position.follow(generation::await_next())) return 0;
      steps = 0;
      finished = target();
      continue;
    }
    const Sums step{agreed.at("count"), agreed.at("indices"), agreed.at("squares")};
    if (step.count != size) throw Error(fmt::format("the replicas trained {} samples, expected {}", step.count, size));
    if (rank == 0) append_to_journal("step", {{"from", from}, {"to", from + size}});
    trained.commit(step, from, from + size);
    position.step();
    if (++steps == kStepsToProfile) trained.profiled_replicas = std::max(trained.profiled_replicas, replicas);
    if (rank == 0 && steps >= kStepsToProfile) hints->set(trained.sums.count, trained.profiled_replicas);
    finished = target() || agreed.at("end") > 0;
    if (!finished && agreed.at("stop") > 0) {
      checkpoint::save_all_states();
      return kStopped;
    }
    if (finished || agreed.at("save") > 0) {
      checkpoint::save_all_states();
      last_saved = Clock::now();
    }
    if (finished || agreed.at("generation") <= generation::current()) continue;
    const json next = collective::world().broadcast(rank == 0 ? announced->to_json() : json());
    collective::teardown();
    if (!position.follow(generation::Generation::from_json(next))) return 0;
    steps = 0;
  }
  write_done(trained);
  return 0;
}

// Returns false if a stop is requested.
bool connect() {
  const auto master = find_master();
  if (!master) return false;
  collective::Options group = collective::options_from_env();
  group.master_addr = *master;
  group.give_up = stop_requested;
  collective::initialize(group);
  report_generation();
  return true;
}

// Joins a running job, which has already sent its states. Returns false if the job dropped this replica.
bool join(Position& position) {
  position.set_steps(generation::join().furthest.boundaries);
  try {
    generation::await_others();
    report_generation();
    return true;
  } catch (const collective::CollectiveError& error) {
    log::warn(error.what());
    return position.follow(generation::await_next());
  }
}

int run(const Options& options) {
  if (options.live == 0) generation::decline("--live was not given");
  const bool joins = generation::joining();
  if (joins) generation::begin_joining();
  if (!joins && !connect()) return kStopped;
  Trained trained;
  Position position;
  checkpoint::load_state(trained);
  if (joins) {
    if (!join(position)) return 0;
  } else {
    checkpoint::agree();
  }
  append_to_journal("start", {{"samples", trained.sums.count}});
  fmt::print("group {} rank {} of {} starts at sample {}\n", env::num_restarts(), env::replica_rank(),
             env::num_replicas(), trained.sums.count);
  std::fflush(stdout);
  const int code = train(options, trained, position);
  append_to_journal("end", {{"samples", trained.sums.count}, {"code", code}});
  if (collective::initialized()) collective::teardown();
  fmt::print("group {} rank {} ends at sample {} with code {}\n", env::num_restarts(), env::replica_rank(),
             trained.sums.count, code);
  return code;
}

// Returns the exit code of the process. A replica that was asked to stop and then loses its peers exits as if it had
// stopped, because it has nothing to add to the newest checkpoint.
int run_to_exit_code(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const collective::CollectiveError& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return stop_requested() ? kStopped : 1;
  } catch (const UsageError& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  signal::install();
  const int code = run_to_exit_code(argc, argv);
  std::fflush(nullptr);
  std::_Exit(code);
}
