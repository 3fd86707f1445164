#include "local/attempt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <set>

#include "adaptdl/error.h"
#include "local/port.h"
#include "local/process_tree.h"
#include "local/replica_environment.h"

namespace adaptdl::sched {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kWindDownTick = std::chrono::milliseconds(10);

std::string seconds(std::chrono::milliseconds span) {
  return fmt::format("{:g}s", std::chrono::duration<double>(span).count());
}

}  // namespace

void LaunchContext::publish(const std::string& state, const std::string& why) {
  if (control == nullptr) return;
  control->status().state = state;
  control->status().why = why;
  control->publish();
}

Attempt::Attempt(LaunchContext& context, int restarts) : context_(context), saves_(context.plan) {
  const LaunchPlan& plan = context_.plan;
  context_.checkpoints.mark();
  const int port = plan.master_port != 0 ? plan.master_port : free_port();
  const Environment caller = caller_environment();
  const unsigned cores = usable_cores();
  const auto on_report = [this](const LocalReplica& replica, const nlohmann::json& report) {
    take_report(replica, report);
  };
  for (int i = 0; i < plan.replicas; ++i) {
    auto environment = to_strings(replica_environment(plan, caller, i, restarts, port, cores));
    replicas_.push_back(std::make_unique<LocalReplica>(plan, plan.node_rank * plan.replicas + i, restarts,
                                                       std::move(environment), context_.guardian, context_.observer,
                                                       on_report));
    exit_order_.watch(replicas_.back()->pid());
  }
  if (context_.control != nullptr) context_.control->status().replicas = plan.replicas;
  context_.publish("running", "");
}

Attempt::~Attempt() { kill_all(); }

void Attempt::take_report(const LocalReplica& replica, const nlohmann::json& report) {
  const auto event = report.find("event");
  if (event == report.end()) {
    if (&replica != replicas_.front().get()) return;
    context_.observer.progress(report);
    if (context_.control == nullptr) return;
    context_.control->status().progress = report;
    context_.control->publish();
  } else if (*event == "checkpoint" && report.contains("path") && report["path"].is_string()) {
    context_.checkpoints.reported(report["path"].get<std::string>());
    saves_.reported(report["path"].get<std::string>());
  }
}

AttemptEnd Attempt::run() {
  while (!all_gone()) {
    wait_for_events();
    for (const int signal_number : context_.signals.take()) handle_signal(signal_number);
    handle_requests();
    if (context_.observer.output_closed() && !stop_requested_) stop("standard output was closed");
    for (const auto& replica : replicas_) {
      if (!replica->gone()) replica->read();
    }
    take_ends();
    for (const auto& replica : replicas_) {
      if (phase_ == Phase::kStopping) replica->ask_to_stop_when_ready();
    }
    wind_down();
    check_deadline();
    tick();
  }
  return end_;
}

void Attempt::wait_for_events() {
  std::vector<pollfd> polled = {{context_.signals.fd(), POLLIN, 0}};
  const int output = context_.observer.output_fd();
  polled.push_back({output, POLLOUT, 0});  // poll ignores -1
  polled.push_back({context_.control == nullptr ? -1 : context_.control->fd(), POLLIN, 0});
  const bool with_output = !context_.observer.congested();
  bool winding_down = false;
  for (const auto& replica : replicas_) {
    replica->add_to(polled, with_output);
    winding_down = winding_down || replica->winding_down();
  }
  auto limit = std::chrono::duration_cast<Clock::duration>(winding_down ? kWindDownTick : kTick);
  if (phase_ != Phase::kRunning) limit = std::clamp(deadline_ - Clock::now(), Clock::duration::zero(), limit);
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  ::poll(polled.data(), polled.size(), static_cast<int>(timeout));
  if (polled[1].revents != 0) context_.observer.write_output();
}

void Attempt::tick() {
  oom_.tick();
  for (const auto& replica : replicas_) {
    if (const auto warning = replica->flush_log()) context_.observer.notice(fmt::format("warning: {}", *warning));
  }
  context_.observer.tick();
}

void Attempt::handle_signal(int signal_number) {
  if (signal_number != SIGINT && signal_number != SIGTERM && signal_number != SIGHUP) return;
  const bool again = context_.user_requests++ > 0;
  if (again && signal_number == SIGINT) {
    if (end_.killed_at_once) return;
    end_.killed_at_once = true;
    context_.observer.notice("interrupted again: killing all replicas");
    kill_all();
  } else if (!again && phase_ == Phase::kRunning) {
    // Only what is saved from now on answers the request.
    context_.checkpoints.mark();
    stop(signal_number == SIGINT ? "interrupted" : fmt::format("received SIG{}", ::sigabbrev_np(signal_number)));
  } else {
    stop_requested_ = true;
  }
}

void Attempt::handle_requests() {
  if (context_.control == nullptr) return;
  for (RunRequest& request : context_.control->take()) handle(std::move(request));
  if (phase_ != Phase::kRunning) saves_.refuse_all("it is coming to its end");
  saves_.tick(replicas_);
}

void Attempt::handle(RunRequest request) {
  switch (request.kind) {
    case RunRequest::Kind::kResize:
      return request.refuse("it is not elastic: its number of replicas stays as it was started");
    case RunRequest::Kind::kCheckpoint:
      return saves_.add(std::move(request));
    case RunRequest::Kind::kStop:
      request.accept();
      if (context_.user_requests++ > 0 || phase_ != Phase::kRunning) {
        stop_requested_ = true;
        return;
      }
      context_.checkpoints.mark();
      return stop("asked for its end by `adaptdl delete`");
    case RunRequest::Kind::kKill:
      request.accept();
      end_.killed_at_once = true;
      context_.observer.notice("asked to end at once: killing all replicas");
      return kill_all();
  }
}

void Attempt::stop(const std::string& why) {
  stop_requested_ = true;
  if (phase_ != Phase::kRunning) return;
  context_.publish("stopping", why);
  const bool by_user = context_.user_requests > 0;
  context_.observer.notice(fmt::format("{}: waiting up to {} for {} to checkpoint and exit (Ctrl-C{} kills at once)",
                                       why, seconds(context_.plan.grace), remaining(), by_user ? "" : " twice"));
  enter(Phase::kStopping, context_.plan.grace);
}

void Attempt::fail() {
  enter(Phase::kFailing, std::min(kFailureGrace, context_.plan.grace));
  for (const auto& replica : replicas_) replica->ask_to_stop();
}

void Attempt::kill_all() {
  enter(Phase::kKilling, kKillWait);
  std::set<pid_t> sessions;
  for (const auto& replica : replicas_) {
    if (replica->gone()) continue;
    replica->set_killed();
    sessions.insert(replica->pid());
  }
  kill_sessions(sessions);
}

void Attempt::enter(Phase phase, std::chrono::milliseconds limit) {
  phase_ = phase;
  deadline_ = Clock::now() + limit;
}

void Attempt::take_ends() {
  std::vector<ReplicaEnd> now;
  for (const auto& replica : replicas_) {
    auto end = replica->take_end();
    if (!end) continue;
    if (is_failure(*end)) {
      const bool killed_by_kernel =
          end->status == ExitStatus{.signalled = true, .code = SIGKILL} && oom_.killed_lately();
      end->out_of_memory = killed_by_kernel || says_out_of_memory(replica->last_lines());
    }
    now.push_back(*end);
    now.back().place = exit_order_.place(replica->pid());
  }
  order_simultaneous(now);
  for (const ReplicaEnd& end : now) handle_end(end);
}

void Attempt::handle_end(const ReplicaEnd& end) {
  end_.ends.push_back(end);
  if (is_failure(end) && (phase_ == Phase::kRunning || phase_ == Phase::kStopping)) {
    const bool alone = end_.ends.size() == replicas_.size();
    context_.observer.notice(
        fmt::format("replica {} {}{}", end.rank, describe_end(end), alone ? "" : "; stopping the others"));
    context_.publish("stopping", fmt::format("replica {} {}", end.rank, describe_end(end)));
    fail();
  } else if (phase_ == Phase::kRunning && end.status == ExitStatus{.signalled = false, .code = kCheckpointedExit}) {
    // Somebody asked this replica itself. If the others know, they are leaving too; if not, the job cannot go on
    // without it.
    stop(fmt::format("replica {} was asked to stop", end.rank));
  }
}

// One look at all processes serves all replicas: there may be thousands of the first, and many of the second.
void Attempt::wind_down() {
  std::set<pid_t> lingering, sweeping, alive;
  for (const auto& replica : replicas_) {
    if (replica->lingering()) lingering.insert(replica->pid());
    if (replica->sweeping()) sweeping.insert(replica->pid());
  }
  if (!lingering.empty()) {
    for (const Member& member : session_members(lingering)) alive.insert(member.session);
  }
  if (!sweeping.empty()) {
    for (const Member& member : kill_sessions(sweeping)) alive.insert(member.session);
  }
  for (const auto& replica : replicas_) {
    if (replica->winding_down()) replica->wind_down(alive.contains(replica->pid()));
  }
}

void Attempt::check_deadline() {
  if (phase_ == Phase::kRunning || Clock::now() < deadline_ || all_gone()) return;
  if (phase_ == Phase::kKilling) {
    throw Error(fmt::format(
        "{} did not die of SIGKILL within {}: the kernel holds on to it, perhaps waiting for a device or a file server",
        remaining(), seconds(kKillWait)));
  }
  if (phase_ == Phase::kStopping) {
    end_.grace_expired = true;
    context_.observer.notice(
        fmt::format("the grace of {} is over: killing {}", seconds(context_.plan.grace), remaining()));
  }
  kill_all();
}

std::string Attempt::remaining() const {
  std::vector<int> ranks;
  for (const auto& replica : replicas_) {
    if (!replica->gone()) ranks.push_back(replica->rank());
  }
  return fmt::format("replica{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

bool Attempt::all_gone() const { return std::ranges::all_of(replicas_, &LocalReplica::gone); }

std::vector<std::string> Attempt::last_lines(int rank) const {
  const auto replica = std::ranges::find(replicas_, rank, &LocalReplica::rank);
  return replica == replicas_.end() ? std::vector<std::string>() : (*replica)->last_lines();
}

}  // namespace adaptdl::sched
