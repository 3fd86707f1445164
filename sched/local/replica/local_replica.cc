#include "local/replica/local_replica.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "adaptdl/error.h"
#include "base/foreign_json.h"
#include "local/base/launch_plan.h"
#include "local/base/process_tree.h"

namespace adaptdl::sched {
namespace {

// The limit per call and stream is high enough to keep up, but not so high that one replica keeps the others waiting.
constexpr std::size_t kReadAtOnce = std::size_t{256} << 10;
// A pipe can still hold this much after its writers have died (an unprivileged process can ask for at most 1 MiB).
constexpr std::size_t kPipeCapacity = std::size_t{1} << 20;

}  // namespace

LocalReplica::LocalReplica(LocalHost& host, int number, const ReplicaPlace& place, std::vector<std::string> environment,
                           OnReport on_report)
    : Replica(host.plan_, number, place, host.observer_, std::move(on_report)),
      host_(host),
      start_up_(std::min(kStartUp, plan_.grace / 2)),
      process_(plan_.program, plan_.arguments, std::move(environment), host.guardian_) {
  host_.exit_order_->watch(pid());
  host_.replicas_.push_back(this);
}

LocalReplica::~LocalReplica() { std::erase(host_.replicas_, this); }

void LocalReplica::add_to(std::vector<pollfd>& polled, bool with_output) const {
  if (process_.status) polled.push_back({process_.status.get(), POLLIN, 0});
  with_output = with_output || asked_;
  if (with_output && process_.out) polled.push_back({process_.out.get(), POLLIN, 0});
  if (with_output && process_.err) polled.push_back({process_.err.get(), POLLIN, 0});
}

void LocalReplica::read_from(Fd& fd, std::size_t limit, const std::function<void(std::string_view)>& sink) {
  std::array<char, std::size_t{64} << 10> buffer;
  for (std::size_t total = 0; fd && total < limit;) {
    const ssize_t size = ::read(fd.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      fd.reset();
      return;
    }
    sink({buffer.data(), static_cast<std::size_t>(size)});
    total += static_cast<std::size_t>(size);
  }
}

void LocalReplica::read_all(std::size_t limit) {
  read_from(process_.status, limit, [this](std::string_view bytes) { take_status(bytes); });
  if (observer_.congested() && !asked_ && limit < kPipeCapacity) return;
  read_from(process_.out, limit, [this](std::string_view bytes) {
    out_.feed(bytes, [this](std::string_view text, bool ends) { take_output(Stream::kOut, text, ends); });
  });
  read_from(process_.err, limit, [this](std::string_view bytes) {
    err_.feed(bytes, [this](std::string_view text, bool ends) { take_output(Stream::kErr, text, ends); });
  });
}

void LocalReplica::read() { read_all(kReadAtOnce); }

void LocalReplica::take_status(std::string_view bytes) {
  status_.feed(bytes, [this](std::string_view text, bool) {
    const auto report = parse_foreign_json(text);
    if (report.is_object()) take_report(report);
  });
}

std::optional<ReplicaEnd> LocalReplica::take_end() {
  if (state_ != State::kRunning) return std::nullopt;
  const auto status = process_.exit_status();
  if (!status) return std::nullopt;
  read_all(kPipeCapacity);
  // A script that does not forward signals is killed by the request to stop, and leaves its program behind. In this
  // case, the program itself must be asked to stop.
  const bool died_of_stop = asked_ && !killed_ && *status == ExitStatus{.signalled = true, .code = SIGTERM};
  state_ = died_of_stop && signal_orphans(process_.pid(), SIGTERM) > 0 ? State::kLingering : State::kSweeping;
  if (sweeping()) note_kill();
  ReplicaEnd end{.rank = rank(),
                 .status = *status,
                 .asked = asked_,
                 .killed = killed_,
                 .out_of_memory = false,
                 .place = host_.exit_order_->place(pid()),
                 .number = number(),
                 .hung = hung_ && status->signalled,
                 .last_lines = {}};
  if (is_failure(end)) {
    finish_lines();  // the last output of a program often does not end with a line feed
    end.last_lines = last_lines();
    const bool killed_by_kernel =
        end.status == ExitStatus{.signalled = true, .code = SIGKILL} && host_.oom_->killed_lately();
    end.out_of_memory = killed_by_kernel || mentions_out_of_memory(end.last_lines);
  }
  return end;
}

void LocalReplica::finish_lines() {
  out_.finish([this](std::string_view text, bool ends) { take_output(Stream::kOut, text, ends); });
  err_.finish([this](std::string_view text, bool ends) { take_output(Stream::kErr, text, ends); });
}

void LocalReplica::wind_down(bool alive) {
  if (lingering() && (killed_ || !alive)) {
    state_ = State::kSweeping;
    note_kill();
  }
  if (!sweeping() || alive) return;
  read_all(kPipeCapacity);
  finish_lines();
  process_.reap();
  process_.out.reset();
  process_.err.reset();
  process_.status.reset();
  state_ = State::kGone;
}

void LocalReplica::kill(bool hung) {
  (hung ? hung_ : killed_) = true;
  note_kill();
  process_.kill_session();
}

void LocalReplica::ask_to_stop() {
  if (state_ != State::kRunning || asked_) return;
  asked_ = true;
  process_.signal(SIGTERM);
}

// Loading LibTorch takes a considerable part of a second, during which a program has no signal handlers yet.
bool LocalReplica::is_starting() const {
  return std::chrono::steady_clock::now() - started_ < start_up_ && !process_.handles(SIGTERM);
}

bool LocalReplica::ask_to_save() {
  if (!handles_save()) return false;
  process_.signal(SIGUSR1);
  return true;
}

}  // namespace adaptdl::sched
