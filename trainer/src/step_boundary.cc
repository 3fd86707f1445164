#include "step_boundary.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "adaptdl/checkpoint.h"
#include "adaptdl/collective.h"
#include "adaptdl/env.h"
#include "adaptdl/log.h"
#include "adaptdl/progress.h"
#include "adaptdl/signal.h"
#include "adaptdl/torch/epoch.h"
#include "rng_state.h"

namespace adaptdl::torch::internal {

namespace {

using Clock = std::chrono::steady_clock;

// What the replicas tell each other at a boundary, in one byte: the signal that asks for a stop, or 0, and whether to
// save.
constexpr unsigned char kSave = 0x80;

struct Flags {
  int signal = 0;
  bool save = false;
};

collective::Bytes encode(const Flags& flags) {
  return {static_cast<char>((static_cast<unsigned>(flags.signal) & 0x7f) | (flags.save ? kSave : 0u))};
}

Flags decode(const collective::Bytes& bytes) {
  if (bytes.size() != 1)
    throw collective::CollectiveError("the replicas are not at the same step boundary: do they run the same program?");
  const auto byte = static_cast<unsigned char>(bytes[0]);
  return {.signal = byte & 0x7f, .save = (byte & kSave) != 0};
}

// Any replica's wish is everyone's. Of two signals the higher counts: SIGTERM over SIGINT.
collective::Bytes join(const collective::Bytes& a, const collective::Bytes& b) {
  const auto x = decode(a), y = decode(b);
  return encode({.signal = std::max(x.signal, y.signal), .save = x.save || y.save});
}

// Samples a second, smoothed over the last dozens of steps of a loop.
class Throughput {
 public:
  // Counts a step of `samples`, which ends now. The first one of a loop only starts the clock: it includes other work.
  double step(const void* loop, std::size_t samples) {
    const auto now = Clock::now();
    const std::chrono::duration<double> elapsed = now - last_;
    last_ = now;
    if (std::exchange(loop_, loop) != loop) {
      seconds_ = samples_ = 0;
      return 0;
    }
    constexpr double kKeep = 0.95;
    seconds_ = kKeep * seconds_ + elapsed.count();
    samples_ = kKeep * samples_ + static_cast<double>(samples);
    return seconds_ > 0 ? samples_ / seconds_ : 0;
  }

 private:
  const void* loop_ = nullptr;
  Clock::time_point last_ = Clock::now();
  double seconds_ = 0, samples_ = 0;
};

std::function<void(int)>& exit_handler() {
  static auto* const handler = new std::function<void(int)>;
  return *handler;
}

// The boundaries of this process. Their agreement is one for all loaders: what was submitted in the last step of one
// loop is decided at the first step of the next.
class Boundaries {
 public:
  void pass(const LoopPosition& position) {
    auto& world = collective::world();
    if (!begun_) {
      checkpoint::agree();
      resume_rng();
      last_save_ = Clock::now();
      begun_ = true;
    }
    if (agreement_.valid()) decide(decode(agreement_.get()), world);
    agreement_ = world.allreduce_async(encode(wishes(world)), join);
    if (world.rank() == 0) report(position, world.size());
  }

 private:
  Flags wishes(const collective::Communicator& world) const {
    // One clock for all, that of rank 0.
    const bool due =
        every_.count() > 0 && world.rank() == 0 && env::checkpoint_path() && Clock::now() - last_save_ >= every_;
    return {.signal = signal::stop_signal(), .save = due};
  }

  void decide(const Flags& agreed, collective::Communicator& world) {
    if (agreed.signal != 0) {
      stop(agreed.signal, world);
    } else if (agreed.save) {
      try {
        save(world, "");
      } catch (const checkpoint::CheckpointError& error) {
        log::warn(fmt::format("the periodic checkpoint failed, training goes on: {}", error.what()));
      }
      last_save_ = Clock::now();  // after a failure too: not at every step again
    }
  }

  bool save(const collective::Communicator& world, const std::string& why) {
    const auto path = checkpoint::save_all_states();
    if (!path) return false;
    progress::event("checkpoint", {{"path", path->string()}});
    if (world.rank() == 0) log::info(fmt::format("saved {}{}", path->string(), why));
    return true;
  }

  void stop(int signal, collective::Communicator& world) {
    const auto* const name = signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "a signal";
    const bool saved = save(world, fmt::format(", stopping on {}", name));
    if (!saved && world.rank() == 0) log::warn("ADAPTDL_CHECKPOINT_PATH is not set: nothing was saved");
    try {
      // So that no replica sees another one's exit as a failure before it is done itself.
      collective::teardown();
    } catch (const Error& error) {
      log::warn(fmt::format("while stopping: {}", error.what()));
    }
    exit_process(saved ? 128 + SIGTERM : 128 + signal);
  }

  void report(const LoopPosition& position, int replicas) {
    const auto epoch = current_epoch();
    if (epoch) progress::set("epoch", *epoch);
    progress::set("step", static_cast<double>(position.step));
    if (position.steps_left) progress::set("steps", static_cast<double>(position.step + *position.steps_left));
    progress::set("batch_size", static_cast<double>(position.batch_size));
    progress::set("replicas", replicas);
    if (const auto rate = throughput_.step(position.loop, position.batch_size); rate > 0)
      progress::set("samples_per_s", rate);
    progress::report();
  }

  bool begun_ = false;
  // Read on all ranks, so that all refuse a malformed one.
  const std::chrono::milliseconds every_ = env::checkpoint_every();
  Clock::time_point last_save_;
  collective::Future agreement_;
  Throughput throughput_;
};

}  // namespace

void step_boundary(const LoopPosition& position) {
  // Never destroyed: a pending agreement may outlast the communicator.
  static auto* const boundaries = new Boundaries;
  boundaries->pass(position);
}

void exit_process(int code) {
  if (exit_handler()) exit_handler()(code);
  std::cout.flush();
  std::cerr.flush();
  std::clog.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}

void set_exit_handler(std::function<void(int code)> handler) { exit_handler() = std::move(handler); }

}  // namespace adaptdl::torch::internal
