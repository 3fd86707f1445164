#include "loop/step_boundary.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "adaptdl/checkpoint.h"
#include "adaptdl/collective.h"
#include "adaptdl/env.h"
#include "adaptdl/generation.h"
#include "adaptdl/log.h"
#include "adaptdl/progress.h"
#include "adaptdl/signal.h"
#include "loop/boundary_message.h"
#include "loop/process_exit.h"
#include "support/regroup.h"
#include "support/replicas.h"
#include "support/rng_state.h"
#include "tensorboard/summary_writer_state.h"

namespace adaptdl::internal {

namespace {

using Clock = std::chrono::steady_clock;

// A report to the launcher has at most 4096 bytes (see progress.h).
constexpr std::size_t kMaxReason = 1024;  // bytes

// The boundaries of this process, which all loaders share. Requests that were submitted in the last step of one loop
// take effect at the first step of the next loop.
class Boundaries {
 public:
  const LoopRequests& receive() {
    if (passes_silently()) return requests_;
    collective::world();  // throws if it is not initialized
    if (!agreement_.valid()) return requests_;
    agreed_ = decode_boundary_message(agreement_.get());
    requests_ = {.data_end = agreed_.data_end != 0, .batch_size = {}, .loader = agreed_.loader};
    if (agreed_.local_bsz > 0)
      requests_.batch_size = BatchSize{agreed_.local_bsz, static_cast<int>(agreed_.accumulation_steps)};
    return requests_;
  }

  void settle() {
    if (passes_silently()) return;
    auto& world = collective::world();
    if (!begun_) start();
    requests_ = {};
    decide(std::exchange(agreed_, {}), world);
  }

  void save_result() {
    if (!collective::initialized() && env::num_replicas() > 1) return;  // there is no process group
    if (!begun_ && collective::initialized()) start();                  // an epoch without steps
    save(", the result of the last epoch");
  }

  void join() {
    if (!generation::joining()) return;
    const auto formation = generation::join();
    passed_ = furthest_ = formation.furthest.boundaries;
    Version::set_all(formation.furthest.versions);
    try {
      generation::await_others();
      join_process_group();
    } catch (const collective::CollectiveError&) {
      form_again();  // this replica has the states, like any other member
    }
    begin();
  }

  void submit(const LoopRequests& requests, const LoopProgress& progress) {
    invalid_ = false;
    begin_steps();
    if (passes_silently()) {
      ++passed_;
      return;
    }
    auto& world = collective::world();
    // Rank 0's clock decides for all replicas.
    const bool due = damaged_.empty() && every_.count() > 0 && world.rank() == 0 && env::checkpoint_path() &&
                     Clock::now() - last_save_ >= every_;
    BoundaryMessage message;
    message.signal = static_cast<std::uint8_t>(signal::stop_signal());
    message.save = signal::take_save_request() ? 1 : 0;
    message.periodic_save = due ? 1 : 0;
    message.data_end = requests.data_end ? 1 : 0;
    if (requests.batch_size) {
      message.loader = requests.loader;
      message.local_bsz = requests.batch_size->local_bsz;
      message.accumulation_steps = static_cast<std::uint32_t>(requests.batch_size->accumulation_steps);
    }
    if (world.rank() == 0 && generation::follows())
      if (const auto next = generation::announced()) message.generation = static_cast<std::uint32_t>(next->number);
    agreement_ = world.allreduce_async(encode(message), join_boundary_messages, "step boundary");
    furthest_ = ++passed_;
    if (world.rank() == 0) reporter_.report(progress, world.size());
  }

  bool passes_silently() const noexcept { return passed_ < furthest_; }
  std::uint64_t regroups() const noexcept { return regroups_; }
  void note_void_step() noexcept { void_ = true; }
  bool step_is_void() const noexcept { return void_; }
  void note_step(const std::string& model, bool valid) {
    if (valid) {
      damaged_.erase(model);
    } else {
      damaged_.insert(model);
      invalid_ = true;
    }
  }
  bool step_is_invalid() const noexcept { return invalid_; }

  void recover() {
    rethrow_unless_recoverable();
    void_ = false;  // the loop has ended, so the step cannot be repeated
    form_again();
  }

  void recover_in_step() {
    // As long as the step has not ended, some replicas may be about to repeat it, including the call that failed, while
    // other replicas are not.
    if (void_ || !all_have_stepped()) throw;
    rethrow_unless_recoverable();
    form_again(true);
  }

  bool recover_from_void_step(const std::function<void()>& undo, const std::function<void()>& keep) {
    if (!void_) return false;
    throw_mismatch();
    --passed_;
    undo();
    form_again();
    // void_ was cleared if the step's result came from a replica that had finished the step.
    if (std::exchange(void_, false)) return true;
    ++passed_;
    keep();
    return false;
  }

 private:
  void rethrow_unless_recoverable() const {
    if (!begun_ || !generation::follows()) throw;
    try {
      throw;
    } catch (const collective::CallError&) {
      throw;  // a new group does not help
    } catch (const collective::CollectiveError&) {
    }
  }

  // If the pending agreement failed because of a mismatch, throws that error. A replica that ended because of a
  // mismatch is not lost: the others end for the same reason.
  void throw_mismatch() {
    if (!agreement_.valid() || !agreement_.ready()) return;
    try {
      agreement_.get();
    } catch (const collective::CallError&) {
      throw;
    } catch (const collective::CollectiveError&) {
    }
  }

  void form_again(bool in_step = false) {
    log::warn("replicas were lost; continuing with the remaining ones");
    for (;;) {
      leave_process_group();
      agreement_ = {};
      agreed_ = {};
      requests_ = {};
      const auto next = generation::await_next();
      if (!next.has_me()) leave(next);
      try {
        take_up(next, in_step);
        return;
      } catch (const checkpoint::CheckpointError&) {
        throw;
      } catch (const collective::CallError&) {
        throw;
      } catch (const std::exception& error) {
        log::warn(fmt::format("generation {} failed while it was forming: {}", next.number, error.what()));
      }
    }
  }

  void take_up(const generation::Generation& next, bool in_step = false) {
    const auto formation = generation::form(next, {passed_, Version::all()}, in_step);
    furthest_ = formation.furthest.boundaries;
    Version::set_all(formation.furthest.versions);
    if (!formation.renewed.empty()) void_ = false;
    ++regroups_;
    join_process_group();
    if (generation::follows()) tolerate_losses();
  }

  void start() {
    checkpoint::agree();
    begin();
  }

  void begin() {
    resume_rng();
    end_event_replay();
    last_save_ = Clock::now();
    begun_ = true;
    if (generation::follows()) tolerate_losses();
  }

  void decide(const BoundaryMessage& agreed, collective::Communicator& world) {
    if (agreed.signal != 0) {
      stop(agreed.signal, world);
      return;
    }
    if (agreed.save != 0 || (agreed.periodic_save != 0 && !invalid_)) {
      try {
        save("");
      } catch (const checkpoint::CheckpointError& error) {
        if (agreed.save != 0)
          progress::event("checkpoint_failed", {{"why", std::string(error.what()).substr(0, kMaxReason)}});
        log::warn(fmt::format("the {} checkpoint failed: {}; training continues",
                              agreed.save != 0 ? "requested" : "periodic", error.what()));
      }
      last_save_ = Clock::now();  // even after a failure, so that the save is not retried at every step
    }
    if (agreed.generation > static_cast<std::uint32_t>(generation::current())) follow(world);
  }

  // Moves to the generation that was announced to rank 0.
  void follow(collective::Communicator& world) {
    const auto next = announced_by_rank_0(world);
    checkpoint::sync_all_states();  // includes the replicas that leave, whose sums would otherwise be lost
    collective::teardown();
    if (!next.has_me()) leave(next);
    leave_process_group();
    take_up(next);
  }

  static void leave(const generation::Generation& next) {
    progress::event("left", {{"generation", next.number}});
    log::info(fmt::format("leaving the job, which continues in generation {} without this replica", next.number));
    exit_process(0);
  }

  static generation::Generation announced_by_rank_0(collective::Communicator& world) {
    nlohmann::json announced;
    if (world.rank() == 0) announced = generation::announced().value().to_json();
    return generation::Generation::from_json(world.broadcast(announced, "next generation"));
  }

  bool save(const std::string& why) {
    const auto path = checkpoint::save_all_states();
    if (!path) return false;
    progress::event("checkpoint", {{"path", path->string()}});
    if (replica_rank() == 0) log::info(fmt::format("saved '{}'{}", path->string(), why));
    return true;
  }

  void stop(int signal, collective::Communicator& world) {
    const auto* const name = signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "a signal";
    const bool saved = save(fmt::format(", stopping on {}", name));
    if (!saved && world.rank() == 0) log::warn("nothing was saved: ADAPTDL_CHECKPOINT_PATH is not set");
    try {
      // Without this, a replica that has not finished yet could mistake another replica's exit for a failure.
      collective::teardown();
    } catch (const Error& error) {
      log::warn(fmt::format("while stopping: {}", error.what()));
    }
    exit_process(saved ? 128 + SIGTERM : 128 + signal);
  }

  bool begun_ = false;
  std::uint64_t passed_ = 0;    // boundaries that this replica has passed
  std::uint64_t furthest_ = 0;  // boundaries that the replica furthest ahead has passed
  std::uint64_t regroups_ = 0;
  bool void_ = false;              // whether the current step is void
  bool invalid_ = false;           // whether a step since the last boundary was invalid
  std::set<std::string> damaged_;  // models whose last steps were invalid
  // All ranks read the variable, so that all of them reject an invalid value.
  const std::chrono::milliseconds every_ = env::checkpoint_every();
  Clock::time_point last_save_;
  collective::Future agreement_;
  BoundaryMessage agreed_;  // received but not yet settled
  LoopRequests requests_;   // the requests in agreed_
  ProgressReporter reporter_;
};

// Never destroyed, because a pending agreement may outlive the communicator.
Boundaries& boundaries() {
  static auto* const instance = new Boundaries;
  return *instance;
}

}  // namespace

const LoopRequests& receive_agreement() { return boundaries().receive(); }
void settle_boundary() { boundaries().settle(); }
void save_result() { boundaries().save_result(); }
void join_if_newcomer() { boundaries().join(); }
std::uint64_t regroups() noexcept { return boundaries().regroups(); }
bool boundary_is_real() noexcept { return !boundaries().passes_silently(); }
void note_void_step() noexcept { boundaries().note_void_step(); }
void recover() { boundaries().recover(); }
void recover_in_step() { boundaries().recover_in_step(); }
bool step_is_void() noexcept { return boundaries().step_is_void(); }
void note_step(const std::string& model, bool valid) { boundaries().note_step(model, valid); }
bool step_is_invalid() noexcept { return boundaries().step_is_invalid(); }
bool recover_from_void_step(const std::function<void()>& undo, const std::function<void()>& keep) {
  return boundaries().recover_from_void_step(undo, keep);
}
void submit_requests(const LoopRequests& requests, const LoopProgress& progress) {
  boundaries().submit(requests, progress);
}

}  // namespace adaptdl::internal
