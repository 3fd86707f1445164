#include "local/launch/replica_set.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <charconv>

#include "adaptdl/error.h"

namespace adaptdl::sched {
namespace {

using Clock = std::chrono::steady_clock;

// A replica that was killed is always replaced, even if memory ran out: the others continue meanwhile. Compare with
// counts() in launcher.cc, for failures that end all replicas.
Membership::End kind_of(const ReplicaEnd& end) {
  if (end.status == ExitStatus{.signalled = true, .code = SIGKILL}) return Membership::End::kKilled;
  if (end.status == ExitStatus{.signalled = false, .code = kCheckpointedExit}) return Membership::End::kCheckpointed;
  return is_failure(end) ? Membership::End::kFailed : Membership::End::kDone;
}

}  // namespace

Membership::Options ReplicaSet::options(const LaunchContext& context) {
  const LaunchPlan& plan = context.plan;
  return {.survives = context.supervisor != nullptr && (plan.elastic || plan.max_restarts > 0),
          .can_join = context.can_join,
          .can_restart = plan.checkpoints.has_value(),
          .grace = plan.grace,
          .restart_after = context.restart_after};
}

ReplicaSet::ReplicaSet(LaunchContext& context, int restarts, Replica::OnReport on_report)
    : context_(context),
      restarts_(restarts),
      on_report_(std::move(on_report)),
      membership_(options(context), context.size.target(), context.budget) {
  context_.host.begin();
  const std::vector<int> members = membership_.members();
  const std::vector<std::string> devices = membership_.devices();
  choose_master();
  if (context_.plan.master_port != 0) master_port_ = context_.plan.master_port;
  if (context_.supervisor != nullptr) context_.supervisor->begin(restarts_, generation());
  const auto size = static_cast<int>(members.size());
  say_devices(devices);
  for (int i = 0; i < size; ++i) start(i, 0, i, size, devices[static_cast<std::size_t>(i)]);
  context_.observer.replicas(size * context_.plan.nodes);
}

void ReplicaSet::start(int number, int generation, int rank, int size, const std::string& device) {
  const LaunchPlan& plan = context_.plan;
  ReplicaPlace place{.rank = plan.node_rank * size + rank,
                     .size = plan.nodes * size,
                     .restarts = restarts_,
                     .master_host = master_host_,
                     .master_port = master_port_,
                     .device = device,
                     .id = "",
                     .generation = generation,
                     .supervisor_url = "",
                     .supervisor_token = plan.token,
                     .token_file = ""};
  if (context_.supervisor != nullptr) {
    place.id = id(number);
    place.supervisor_url = context_.supervisor->url();
    place.supervisor_token = context_.supervisor->token();
    place.token_file = context_.supervisor->token_file();
  }
  const auto on_report = [this](const Replica& replica, const nlohmann::json& report) {
    reports_itself_ = reports_itself_ || !report.contains("event");
    take_report(replica, report);
  };
  replicas_.push_back(context_.host.start(number, place, on_report));
  devices_[number] = device;
}

std::string ReplicaSet::id(int number) const { return fmt::format("{}-{}", restarts_, number); }

std::optional<int> ReplicaSet::number_of(const std::string& id) const {
  const std::string prefix = fmt::format("{}-", restarts_);
  int number = -1;
  if (!id.starts_with(prefix)) return std::nullopt;
  const auto [end, error] = std::from_chars(id.data() + prefix.size(), id.data() + id.size(), number);
  if (error != std::errc() || end != id.data() + id.size()) return std::nullopt;
  return number;
}

Replica* ReplicaSet::find(int number) const {
  const auto found = std::ranges::find(replicas_, number, &Replica::number);
  return found == replicas_.end() ? nullptr : found->get();
}

bool ReplicaSet::all_gone() const { return std::ranges::all_of(replicas_, &Replica::gone); }

bool ReplicaSet::is_first(const Replica& replica) const {
  const std::vector<int> members = membership_.members();
  return !members.empty() && members.front() == replica.number();
}

Generation ReplicaSet::generation() const {
  Generation result{.number = membership_.generation(), .replicas = {}};
  const std::vector<int> members = membership_.members();
  const std::vector<std::string> devices = membership_.devices();
  for (std::size_t i = 0; i < members.size(); ++i) {
    result.replicas.push_back(
        {.id = id(members[i]), .address = context_.host.address(devices[i]), .port = master_port_});
  }
  return result;
}

void ReplicaSet::choose_master() {
  const std::string device = membership_.devices().front();
  master_host_ = context_.host.address(device);
  master_port_ = context_.host.free_port(device);
}

void ReplicaSet::take_report(const Replica& replica, const nlohmann::json& report) {
  const auto event = report.find("event");
  const auto number = report.find("generation");
  if (event == report.end()) {
    trained_ = true;
    if (membership_.is_member(replica.number())) membership_.progressed(Clock::now());
  } else if (*event == "generation" && number != report.end() && number->is_number_integer()) {
    trained_ = trained_ || number->get<int>() > 0;  // replicas report generation 0 before their first step
    // The supervisor may still have hints of an earlier start. Those hints are used as soon as a replica of this start
    // reports its generation, since the hints of this start arrive later.
    if (context_.supervisor != nullptr) {
      const auto hints = context_.supervisor->hints();
      if (hints.contains("liveRescale")) membership_.set_follows(hints["liveRescale"].get<bool>());
    }
    membership_.trains(replica.number(), number->get<int>());
    const std::vector<int> members = membership_.members();
    const auto rank = std::ranges::find(members, replica.number()) - members.begin();
    if (number->get<int>() != membership_.generation() || rank == std::ssize(members)) return;
    if (const auto warning = find(replica.number())->set_rank(static_cast<int>(rank))) {
      context_.observer.notice(fmt::format("warning: {}", *warning));
    }
  } else if (*event == "cannot_join" && membership_.is_newcomer(replica.number())) {
    membership_.cannot_join(replica.number());
    context_.can_join = false;
    context_.observer.notice(fmt::format(
        "new replicas cannot join the program while it runs{}; from now on, it is rescaled "
        "by checkpoint and restart",
        report.contains("why") && report["why"].is_string() ? ": " + report["why"].get<std::string>() : ""));
  }
  on_report_(replica, report);
}

void ReplicaSet::receive() {
  if (context_.supervisor == nullptr) return;
  const auto received = context_.supervisor->take();
  if (received.hints_changed) {
    const auto hints = context_.supervisor->hints();
    const bool follows = hints.value("liveRescale", false);
    const bool measured = hints.value("perfParams", nlohmann::json()).is_object();
    membership_.set_follows(follows);
    // Measured step times show that steps were completed; a program that uses another runtime reports no other
    // progress.
    trained_ = trained_ || measured;
    if (follows || measured) context_.size.may_grow();
    if (context_.share != nullptr) context_.share->set_hints(hints);
  }
  for (const LocalSupervisor::Call& call : received.calls) {
    const auto number = number_of(call.replica_id);
    if (!number) continue;
    if (call.broken) {
      membership_.broken(*number, call.after, Clock::now());
    } else {
      membership_.waits(*number, Clock::now());
    }
  }
}

void ReplicaSet::take_progress() {
  if (context_.supervisor == nullptr) return;
  const std::vector<int> members = membership_.members();
  for (const auto& [id, report] : context_.supervisor->take_progress()) {
    const auto number = id.empty() && !members.empty() ? members.front() : number_of(id);
    const Replica* replica = number ? find(*number) : nullptr;
    if (replica == nullptr || reports_itself_) continue;
    // The first report is sent before the first step.
    const bool trains = report.value("step", 0.0) > 0 || report.value("progress", 0.0) > 0;
    trains ? take_report(*replica, report) : on_report_(*replica, report);
  }
}

ReplicaSet::Wish ReplicaSet::tick() {
  receive();
  membership_.set_target(context_.size.target());
  Wish wish;
  for (const MembershipAction& action : membership_.decide(Clock::now())) {
    switch (action.kind) {
      case MembershipAction::Kind::kStart:
        start_newcomer(action);
        break;
      case MembershipAction::Kind::kIssue:
        issue(action);
        break;
      case MembershipAction::Kind::kKill:
        kill(action);
        break;
      case MembershipAction::Kind::kRestart:
        wish = {Wish::Kind::kRestart, action.why};
        break;
      case MembershipAction::Kind::kFail:
        wish = {Wish::Kind::kFail, action.why};
        break;
      case MembershipAction::Kind::kGiveUp:
      case MembershipAction::Kind::kNotice:
        context_.observer.notice(action.why);
    }
  }
  // While the run is stopping, it keeps the devices that its replicas release, for its next start.
  if (!stopping_) say_devices({});
  return wish;
}

void ReplicaSet::say_devices(const std::vector<std::string>& starting) {
  std::vector<std::string> used = starting;
  for (const auto& replica : replicas_) {
    if (!replica->gone()) used.push_back(devices_.at(replica->number()));
  }
  const auto now = Clock::now();
  context_.device_time.hold(used, now);
  if (context_.share != nullptr) context_.share->set_used(std::move(used), membership_.is_stuck(now));
}

void ReplicaSet::start_newcomer(const MembershipAction& action) {
  say_devices({action.device});
  try {
    start(action.replica, action.generation, action.rank, action.size, action.device);
  } catch (const Error& error) {
    // The other replicas can continue without the new one.
    context_.observer.notice(fmt::format("warning: cannot start another replica: {}", error.what()));
    membership_.ended(action.replica, Membership::End::kFailed, Clock::now());
  }
}

void ReplicaSet::issue(const MembershipAction& action) {
  context_.observer.notice(action.why);
  context_.observer.replicas(static_cast<int>(action.members.size()));
  try {
    // Each generation gets a new port, since the old port may still have connections of the previous generation.
    choose_master();
  } catch (const Error&) {
    // If the device of rank 0 has been lost, the end of the replica will be reported, and another generation issued.
    if (!context_.host.address(membership_.devices().front()).empty()) throw;
    return;
  }
  context_.supervisor->set_generation(restarts_, generation());
}

void ReplicaSet::kill(const MembershipAction& action) {
  Replica* replica = find(action.replica);
  if (replica == nullptr || replica->gone()) return;
  const bool newcomer = membership_.is_newcomer(action.replica);
  context_.observer.notice(
      fmt::format("killing {}replica {}: {}", newcomer ? "the new " : "", replica->rank(), action.why));
  replica->kill(action.hung);
}

void ReplicaSet::stop() {
  stopping_ = true;
  membership_.stop();
}

void ReplicaSet::give_up() {
  stopping_ = true;
  membership_.give_up();
}

std::optional<std::string> ReplicaSet::resize() {
  membership_.set_target(context_.size.target());
  const auto now = static_cast<int>(membership_.members().size());
  const bool fits = membership_.steady() && context_.size.min() <= now && now <= context_.size.max();
  if (fits || !membership_.is_stuck(Clock::now())) return std::nullopt;
  return "the program does not support changing the number of replicas while it runs, and the run has no checkpoints "
         "to restart from";
}

bool ReplicaSet::survives(const ReplicaEnd& end) {
  const bool newcomer = membership_.is_newcomer(end.number);
  if (!membership_.ended(end.number, kind_of(end), Clock::now())) return false;
  survived_.insert(end.number);
  if (is_failure(end)) {
    context_.observer.notice(fmt::format("{}replica {} {}", newcomer ? "the new " : "", end.rank, describe_end(end)));
  }
  return true;
}

bool ReplicaSet::can_save_without(const ReplicaEnd& end) const {
  return kind_of(end) == Membership::End::kKilled && membership_.can_save_without(end.number);
}

void ReplicaSet::clear() {
  std::erase_if(replicas_,
                [this](const auto& replica) { return replica->gone() && survived_.erase(replica->number()) > 0; });
}

}  // namespace adaptdl::sched
