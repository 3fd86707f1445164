// A minimal job that does everything that is expected of a replica: it finds its peers, counts steps together with
// them, reports its progress, saves its count on request, and on a stop signal saves it and exits with 143. Options
// make it misbehave.
//
//   replica_program [--steps N] [--pause MS] [--checkpoint-at STEP] [--at-step STEP [--rank R] ACTION]
//   ACTION: --exit CODE | --signal NUMBER | --hang (at a stop, never end) | --forget (at a stop, exit 143 without
//   saving)
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "adaptdl/checkpoint.h"
#include "adaptdl/collective.h"
#include "adaptdl/env.h"
#include "adaptdl/progress.h"
#include "adaptdl/signal.h"

namespace {

using namespace adaptdl;

struct Options {
  int steps = 10;
  int pause = 10;          // milliseconds
  int checkpoint_at = -1;  // a step after which to save without a request
  int at_step = -1;
  int rank = -1;  // the rank that misbehaves; -1: all ranks
  int exit_code = -1;
  int signal_number = 0;
  bool hang = false;
  bool forget = false;
};

Options parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, int*> numbers = {
      {"--steps", &options.steps},         {"--pause", &options.pause},
      {"--rank", &options.rank},           {"--checkpoint-at", &options.checkpoint_at},
      {"--at-step", &options.at_step},     {"--exit", &options.exit_code},
      {"--signal", &options.signal_number}};
  const std::map<std::string, bool*> flags = {{"--hang", &options.hang}, {"--forget", &options.forget}};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (const auto flag = flags.find(word); flag != flags.end()) {
      *flag->second = true;
    } else if (const auto number = numbers.find(word); number != numbers.end() && i + 1 < argc) {
      *number->second = std::stoi(argv[++i]);
    } else {
      throw UsageError("cannot make sense of " + word);
    }
  }
  return options;
}

class Counter : public checkpoint::State {
 public:
  Counter() : State("counter") {}
  void save(checkpoint::Writer& writer) const override { writer.json("step", step); }
  void load(const checkpoint::Reader& reader) override { step = reader.json("step").get<int>(); }
  nlohmann::json progress() const override { return {{"epoch", step / 10}, {"step", step}}; }

  int step = 0;
};

void save(int step) {
  if (const auto path = checkpoint::save_all_states()) {
    progress::event("checkpoint", {{"path", path->string()}});
    fmt::print("saved step {}\n", step);
    std::fflush(stdout);
  }
}

void misbehave(const Options& options) {
  if (options.exit_code >= 0) {
    fmt::print(stderr, "exiting with {} on purpose\n", options.exit_code);
    std::_Exit(options.exit_code);
  }
  if (options.signal_number == SIGSEGV) ::signal(SIGSEGV, SIG_DFL);  // a sanitizer would turn the signal into an exit
  if (options.signal_number != 0) ::raise(options.signal_number);
}

int run(const Options& options) {
  signal::install();
  collective::initialize();
  const int rank = env::replica_rank();
  Counter counter;
  checkpoint::load_state(counter);
  checkpoint::agree();
  fmt::print("begins at step {} of start {}\n", counter.step, env::num_restarts());
  std::fflush(stdout);
  while (counter.step < options.steps) {
    std::this_thread::sleep_for(std::chrono::milliseconds(options.pause));
    // The replicas agree on whether a checkpoint or a stop was requested.
    const auto saves = collective::allreduce(nlohmann::json(signal::take_save_request() ? 1 : 0));
    const auto stops = collective::allreduce(nlohmann::json(signal::stop_signal() != 0 ? 1 : 0));
    const bool mine = options.rank < 0 || options.rank == rank;
    if (saves.get<int>() > 0 && stops.get<int>() == 0) save(counter.step);
    if (stops.get<int>() > 0) {
      while (options.hang && mine) std::this_thread::sleep_for(std::chrono::seconds(1));
      if (!options.forget) save(counter.step);
      collective::teardown();
      return 143;
    }
    ++counter.step;
    progress::set("epoch", counter.step / 10);
    progress::set("step", counter.step);
    progress::set("steps", options.steps);
    progress::set("loss", 1.0 / counter.step);
    progress::report();
    if (counter.step == options.checkpoint_at) save(counter.step);
    // Misbehave only at the first start, so that a restart gets past this step.
    if (counter.step == options.at_step && mine && env::num_restarts() == 0) misbehave(options);
  }
  collective::teardown();
  fmt::print("done at step {}\n", counter.step);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
