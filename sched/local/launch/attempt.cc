#include "local/launch/attempt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "adaptdl/error.h"

namespace adaptdl::sched {
namespace {

// If the launcher is killed, at most the device-seconds of this period are lost.
constexpr auto kPublishDeviceTime = std::chrono::seconds(5);

std::string seconds(std::chrono::milliseconds span) {
  return fmt::format("{:g}s", std::chrono::duration<double>(span).count());
}

}  // namespace

void LaunchContext::publish(const std::string& state, const std::string& why) {
  if (control == nullptr) return;
  control->status().state = state;
  control->status().why = why;
  publish();
}

void LaunchContext::publish() {
  if (control == nullptr) return;
  published = std::chrono::steady_clock::now();
  control->status().device_seconds = device_time.seconds(published);
  control->publish();
}

void LaunchContext::set_share(const RunShare& wanted) {
  size.prefer(wanted.replicas);
  if (share != nullptr) share->set_weight(wanted.weight);
}

void LaunchContext::publish_device_time() {
  const auto now = std::chrono::steady_clock::now();
  if (control == nullptr || now - published < kPublishDeviceTime) return;
  if (device_time.seconds(now) > control->status().device_seconds) publish();
}

Attempt::Attempt(LaunchContext& context, int restarts)
    : context_(context),
      saves_(context.plan),
      replicas_(context, restarts,
                [this](const Replica& replica, const nlohmann::json& report) { take_report(replica, report); }) {
  publish_membership();
}

Attempt::~Attempt() { kill_all(); }

void Attempt::take_report(const Replica& replica, const nlohmann::json& report) {
  const auto event = report.find("event");
  if (event == report.end()) {
    if (!replicas_.is_first(replica)) return;
    context_.observer.progress(report);
    if (context_.control == nullptr) return;
    context_.control->status().progress = report;
    context_.publish();
  } else if (*event == "checkpoint" && report.contains("path") && report["path"].is_string()) {
    context_.checkpoints.reported(report["path"].get<std::string>());
    saves_.reported(report["path"].get<std::string>());
  } else if (*event == "checkpoint_failed" && report.contains("why") && report["why"].is_string()) {
    saves_.failed(replica.number(), report["why"].get<std::string>());
  }
}

AttemptEnd Attempt::run() {
  while (!replicas_.all_gone() && !leaves_rest_behind()) {
    wait_for_events();
    for (const int signal_number : context_.signals.take()) handle_signal(signal_number);
    handle_requests();
    hear_share();
    if (context_.observer.output_closed() && !stop_requested_) stop("standard output was closed");
    context_.host.read();
    take_ends();
    follow_membership();
    for (const auto& replica : replicas_.all()) {
      if (phase_ == Phase::kStopping) replica->ask_to_stop_when_ready();
    }
    context_.host.tick();
    check_deadline();
    tick();
  }
  return end_;
}

void Attempt::wait_for_events() {
  std::vector<pollfd> polled = {{context_.signals.fd(), POLLIN, 0}};
  const int output = context_.observer.output_fd();
  polled.push_back({output, POLLOUT, 0});  // poll() ignores -1
  polled.push_back({context_.control == nullptr ? -1 : context_.control->fd(), POLLIN, 0});
  polled.push_back({context_.supervisor == nullptr ? -1 : context_.supervisor->fd(), POLLIN, 0});
  polled.push_back({context_.share == nullptr ? -1 : context_.share->fd(), POLLIN, 0});
  context_.host.add_to(polled, !context_.observer.congested());
  auto limit = std::chrono::duration_cast<Clock::duration>(context_.host.wait_limit());
  if (phase_ != Phase::kRunning) limit = std::clamp(deadline_ - Clock::now(), Clock::duration::zero(), limit);
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  ::poll(polled.data(), polled.size(), static_cast<int>(timeout));
  if (polled[1].revents != 0) context_.observer.write_output();
}

void Attempt::tick() {
  context_.publish_device_time();
  for (const auto& replica : replicas_.all()) {
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
    // Only a checkpoint that is saved from now on satisfies the request.
    context_.checkpoints.mark();
    stop(signal_number == SIGINT ? "interrupted" : fmt::format("received SIG{}", ::sigabbrev_np(signal_number)));
  } else {
    stop_requested_ = true;
  }
}

void Attempt::hear_share() {
  if (context_.share == nullptr) return;
  const std::size_t before = context_.size.target().devices.size();
  if (!context_.share->take() || phase_ != Phase::kRunning) return;
  if (context_.size.target().devices.size() != before)
    context_.observer.notice(fmt::format("device allocation changed: {}", context_.share->reason()));
}

void Attempt::handle_requests() {
  if (context_.control == nullptr) return;
  for (RunRequest& request : context_.control->take()) handle(std::move(request));
  if (phase_ != Phase::kRunning) saves_.refuse_all("it is already ending");
  saves_.tick(replicas_.all());
}

void Attempt::handle(RunRequest request) {
  switch (request.kind) {
    case RunRequest::Kind::kResize:
      return resize(std::move(request));
    case RunRequest::Kind::kShare:
      context_.set_share(request.share);
      return request.accept();
    case RunRequest::Kind::kCheckpoint:
      return saves_.add(std::move(request));
    case RunRequest::Kind::kStop:
      request.accept();
      if (context_.user_requests++ > 0 || phase_ != Phase::kRunning) {
        stop_requested_ = true;
        return;
      }
      context_.checkpoints.mark();
      return stop("stop requested by `adaptdl delete`");
    case RunRequest::Kind::kKill:
      request.accept();
      end_.killed_at_once = true;
      context_.observer.notice("immediate stop requested: killing all replicas");
      return kill_all();
  }
}

void Attempt::resize(RunRequest request) {
  if (context_.supervisor == nullptr) return request.refuse("cannot be resized, because it runs on several machines");
  if (phase_ != Phase::kRunning) return request.refuse("it is already ending");
  const RunSize before = context_.size;
  auto refusal = context_.size.resize(request.min, request.max);
  if (!refusal) refusal = replicas_.resize();
  if (refusal) {
    context_.size = before;
    return request.refuse(*refusal);
  }
  request.accept();
}

void Attempt::follow_membership() {
  replicas_.clear();
  if (phase_ != Phase::kRunning && phase_ != Phase::kStopping) return;
  const ReplicaSet::Wish wish = replicas_.tick();
  if (phase_ != Phase::kRunning) return;
  publish_membership();
  if (wish.kind == ReplicaSet::Wish::Kind::kRestart) rescale(wish.why);
  if (wish.kind != ReplicaSet::Wish::Kind::kFail) return;
  context_.observer.notice(fmt::format("{}: stopping all replicas", wish.why));
  if (last_failure_) end_.ends.push_back(*last_failure_);
  fail();
}

void Attempt::publish_membership() {
  if (context_.control == nullptr) return;
  const Membership& membership = replicas_.membership();
  RunStatus& status = context_.control->status();
  const std::string state = membership.steady() || membership.finishing() ? "running" : "rescaling";
  const auto replicas = static_cast<int>(membership.members().size());
  const auto wanted = static_cast<int>(membership.target().devices.size());
  std::vector<std::string> devices = membership.devices();
  if (devices.empty() || devices.front().empty()) devices.clear();
  const std::string why = context_.share == nullptr ? "" : context_.share->reason();
  const auto before =
      std::tie(status.state, status.why, status.replicas, status.wanted, status.min, status.max, status.devices);
  if (before == std::tuple(state, why, replicas, wanted, context_.size.min(), context_.size.max(), devices)) return;
  status.replicas = replicas;
  status.wanted = wanted;
  status.min = context_.size.min();
  status.max = context_.size.max();
  status.devices = std::move(devices);
  context_.publish(state, why);
}

void Attempt::rescale(const std::string& change) {
  for (const auto& replica : replicas_.all()) {
    if (!replicas_.membership().is_member(replica->number()) || replica->handles_stop()) continue;
    // SIGTERM would end the replica without a checkpoint. A replica that is still starting can be asked again in a
    // moment.
    if (!replica->is_starting() && !std::exchange(reported_unwilling_, true)) {
      context_.observer.notice(
          "the program does not handle SIGTERM and cannot be restarted from a checkpoint: "
          "keeping its replicas as they are");
    }
    return;
  }
  rescales_ = true;
  // Only a checkpoint that is saved from now on includes all the work done.
  context_.checkpoints.mark();
  context_.observer.notice(fmt::format("{}: waiting up to {} for {} to checkpoint before the restart", change,
                                       seconds(context_.plan.grace), remaining()));
  context_.publish("rescaling", change);
  replicas_.stop();
  enter(Phase::kStopping, context_.plan.grace);
}

void Attempt::stop(const std::string& why) {
  stop_requested_ = true;
  if (phase_ != Phase::kRunning) return;
  replicas_.stop();
  context_.publish("stopping", why);
  const bool by_user = context_.user_requests > 0;
  context_.observer.notice(fmt::format("{}: waiting up to {} for {} to checkpoint and exit (Ctrl-C{} kills at once)",
                                       why, seconds(context_.plan.grace), remaining(), by_user ? "" : " twice"));
  enter(Phase::kStopping, context_.plan.grace);
}

// The end of this replica ends the run, but only after the other replicas have saved a checkpoint.
void Attempt::save_and_fail(const ReplicaEnd& end) {
  end_.ends.push_back(end);
  replicas_.stop();
  replicas_.survives(end);  // same as for every replica that ends while the run is stopping
  context_.publish("stopping", fmt::format("replica {} {}", end.rank, describe_end(end)));
  context_.observer.notice(fmt::format("stopping: waiting up to {} for {} to checkpoint (Ctrl-C twice kills at once)",
                                       seconds(context_.plan.grace), remaining()));
  enter(Phase::kStopping, context_.plan.grace);
}

void Attempt::fail() {
  replicas_.give_up();
  enter(Phase::kFailing, std::min(kFailureGrace, context_.plan.grace));
  for (const auto& replica : replicas_.all()) replica->ask_to_stop();
}

void Attempt::kill_all() {
  replicas_.give_up();
  enter(Phase::kKilling, kKillWait);
  context_.host.kill_all();
}

void Attempt::enter(Phase phase, std::chrono::milliseconds limit) {
  phase_ = phase;
  deadline_ = Clock::now() + limit;
}

void Attempt::take_ends() {
  std::vector<ReplicaEnd> now;
  for (const auto& replica : replicas_.all()) {
    if (auto end = replica->take_end()) now.push_back(std::move(*end));
  }
  if (!now.empty()) {
    // Whether the other replicas survive depends on their reports, which may have arrived since the last read.
    context_.host.read();
    replicas_.receive();
  }
  // By now, all reports from the ended replicas have been read.
  replicas_.take_progress();
  order_simultaneous(now);
  for (const ReplicaEnd& end : now) handle_end(end);
}

void Attempt::handle_end(const ReplicaEnd& end) {
  if (phase_ == Phase::kRunning && replicas_.can_save_without(end)) return save_and_fail(end);
  if (replicas_.survives(end)) {
    if (is_failure(end)) last_failure_ = end;
    return;
  }
  end_.ends.push_back(end);
  if (is_failure(end) && (phase_ == Phase::kRunning || phase_ == Phase::kStopping)) {
    const bool alone = std::ranges::all_of(replicas_.all(), &Replica::ended);
    context_.observer.notice(
        fmt::format("replica {} {}{}", end.rank, describe_end(end), alone ? "" : "; stopping the others"));
    context_.publish("stopping", fmt::format("replica {} {}", end.rank, describe_end(end)));
    fail();
  } else if (phase_ == Phase::kRunning && end.status == ExitStatus{.signalled = false, .code = kCheckpointedExit}) {
    // Another process asked this replica to stop. If the other replicas know of the request, they exit, too. If they do
    // not, the job cannot continue without this replica.
    stop(fmt::format("replica {} was asked to stop", end.rank));
  }
}

void Attempt::check_deadline() {
  if (phase_ == Phase::kRunning || Clock::now() < deadline_ || replicas_.all_gone()) return;
  if (phase_ == Phase::kKilling) throw Error(still_running());
  if (phase_ == Phase::kStopping) {
    end_.grace_expired = true;
    context_.observer.notice(
        fmt::format("grace period of {} expired: killing {}", seconds(context_.plan.grace), remaining()));
  }
  kill_all();
}

// Returns whether the run ends although processes are left, because they cannot be killed.
bool Attempt::leaves_rest_behind() const {
  // After a failure, check_deadline() reports the processes as an error.
  if (phase_ == Phase::kFailing || phase_ == Phase::kKilling) return false;
  const auto is_over = [](const auto& replica) { return replica->gone() || replica->is_unkillable(); };
  if (!std::ranges::all_of(replicas_.all(), is_over)) return false;
  context_.observer.notice(fmt::format("warning: {}", still_running()));
  return true;
}

std::string Attempt::still_running() const {
  std::vector<int> ranks;
  for (const auto& replica : replicas_.all()) {
    if (!replica->gone()) ranks.push_back(replica->rank());
  }
  return fmt::format(
      "replica{} {} still running {} after SIGKILL: blocked in the kernel, perhaps waiting for a device or a file "
      "server",
      ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), seconds(kKillWait));
}

std::string Attempt::remaining() const {
  std::vector<int> ranks;
  for (const auto& replica : replicas_.all()) {
    if (!replica->ended()) ranks.push_back(replica->rank());
  }
  return fmt::format("replica{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace adaptdl::sched
