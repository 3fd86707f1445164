#include "local/local_replica.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "adaptdl/error.h"
#include "foreign_json.h"
#include "local/launch_plan.h"
#include "local/process_tree.h"

namespace adaptdl::sched {
namespace {

// The limit per call and stream is enough to keep up, but not so much that one replica keeps the others waiting.
constexpr std::size_t kReadAtOnce = std::size_t{256} << 10;
// A pipe can still hold this much when its writers are dead (an unprivileged process can ask for at most 1 MiB).
constexpr std::size_t kPipeCapacity = std::size_t{1} << 20;

}  // namespace

LocalReplica::LocalReplica(const LaunchPlan& plan, int number, int rank, int restarts,
                           std::vector<std::string> environment, Guardian& guardian, LaunchObserver& observer,
                           OnReport on_report)
    : plan_(plan),
      number_(number),
      rank_(rank),
      restarts_(restarts),
      start_up_(std::min(kStartUp, plan.grace / 2)),
      observer_(observer),
      on_report_(std::move(on_report)),
      log_(plan.logs ? std::optional<ReplicaLog>(std::in_place, *plan.logs, rank, plan.job_id, restarts)
                     : std::nullopt),
      process_(plan.program, plan.arguments, std::move(environment), guardian) {}

std::optional<std::string> LocalReplica::set_rank(int rank) {
  if (std::exchange(rank_, rank) == rank || !log_) return std::nullopt;
  auto warning = log_->flush();
  try {
    log_ = ReplicaLog(*plan_.logs, rank, plan_.job_id, restarts_);
  } catch (const Error& error) {
    warning = error.what();
  }
  return warning;
}

void LocalReplica::add_to(std::vector<pollfd>& polled, bool with_output) const {
  if (process_.status) polled.push_back({process_.status.get(), POLLIN, 0});
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
  if (observer_.congested() && limit < kPipeCapacity) return;
  read_from(process_.out, limit, [this](std::string_view bytes) {
    out_.feed(bytes, [this](std::string_view text, bool ends) { take_output(Stream::kOut, text, ends); });
  });
  read_from(process_.err, limit, [this](std::string_view bytes) {
    err_.feed(bytes, [this](std::string_view text, bool ends) { take_output(Stream::kErr, text, ends); });
  });
}

void LocalReplica::read() { read_all(kReadAtOnce); }

void LocalReplica::take_output(Stream stream, std::string_view text, bool ends) {
  if (log_) log_->line(stream, text, ends);
  last_lines_.add(text);
  observer_.line(rank_, stream, text, ends);
}

void LocalReplica::take_status(std::string_view bytes) {
  status_.feed(bytes, [this](std::string_view text, bool) {
    const auto report = parse_foreign_json(text);
    if (report.is_object()) on_report_(*this, report);
  });
}

std::optional<ReplicaEnd> LocalReplica::take_end() {
  if (state_ != State::kRunning) return std::nullopt;
  const auto status = process_.exit_status();
  if (!status) return std::nullopt;
  read_all(kPipeCapacity);
  // A script that does not forward signals dies of a stop. It leaves the program behind, which must be asked instead.
  const bool died_of_stop = asked_ && !killed_ && *status == ExitStatus{.signalled = true, .code = SIGTERM};
  state_ = died_of_stop && signal_orphans(process_.pid(), SIGTERM) > 0 ? State::kLingering : State::kSweeping;
  return ReplicaEnd{.rank = rank_,
                    .status = *status,
                    .asked = asked_,
                    .killed = killed_,
                    .out_of_memory = false,
                    .number = number_,
                    .hung = hung_ && status->signalled,
                    .last_lines = {}};
}

void LocalReplica::wind_down(bool alive) {
  if (lingering() && (killed_ || !alive)) state_ = State::kSweeping;
  if (!sweeping() || alive) return;
  read_all(kPipeCapacity);
  out_.finish([this](std::string_view text, bool ends) { take_output(Stream::kOut, text, ends); });
  err_.finish([this](std::string_view text, bool ends) { take_output(Stream::kErr, text, ends); });
  process_.reap();
  process_.out.reset();
  process_.err.reset();
  process_.status.reset();
  state_ = State::kGone;
}

void LocalReplica::kill(bool hung) noexcept {
  (hung ? hung_ : killed_) = true;
  process_.kill_session();
}

void LocalReplica::ask_to_stop() {
  if (state_ != State::kRunning || asked_) return;
  asked_ = true;
  process_.signal(SIGTERM);
}

// Loading LibTorch takes a large part of a second, in which a program has no signal handlers yet.
bool LocalReplica::is_starting() const {
  return std::chrono::steady_clock::now() - started_ < start_up_ && !process_.handles(SIGTERM);
}

void LocalReplica::ask_to_stop_when_ready() {
  if (!is_starting()) ask_to_stop();
}

bool LocalReplica::ask_to_save() {
  if (state_ != State::kRunning || !process_.handles(SIGUSR1)) return false;
  process_.signal(SIGUSR1);
  return true;
}

}  // namespace adaptdl::sched
