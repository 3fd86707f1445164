// A replica other than rank 0: one connection, driven by the threads that make calls and wait for results. It needs no
// thread of its own, because results can stay in the kernel's buffers, or at rank 0, until a thread requests them.
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "adaptdl/log.h"
#include "collective/engine.h"
#include "collective/link.h"

namespace adaptdl::collective {
namespace {

using wire::Frame;
using wire::Kind;
using wire::Type;
using TimePoint = net::Clock::time_point;

constexpr std::chrono::milliseconds kFirstBackoff{5};

// Connects, sends the hello and waits for the answer.
class Introduction {
 public:
  explicit Introduction(const Options& options)
      : options_(options),
        address_(net::endpoint(options.master_addr, options.master_port)),
        deadline_(net::Clock::now() + options.connect_timeout) {}

  // Retries until rank 0 accepts. Throws CollectiveError if rank 0 refuses this replica, if the process at its address
  // is not a replica, and at the deadline.
  Fd run();
  TimePoint deadline() const { return deadline_; }

 private:
  static constexpr std::string_view kRefused =
      "it closed the connection without an answer; does it have the same secret?";

  bool introduce(int fd);
  bool wait_readable(int fd, const std::string& why_before);
  void check_given_up() const {
    if (options_.give_up && options_.give_up()) throw CollectiveError(kGivenUp);
  }
  // Returns why the last attempt failed, and whether a process with another secret answered an earlier attempt.
  std::string reason() const {
    return !refused_ || why_ == kRefused ? why_ : fmt::format("{}; earlier: {}", why_, kRefused);
  }

  const Options& options_;
  const std::string address_;
  const TimePoint deadline_;
  std::string why_;       // why the last attempt failed
  bool refused_ = false;  // whether a process with another secret closed the connection in any attempt
};

Fd Introduction::run() {
  const TimePoint log_at = net::Clock::now() + kLogAfter;
  bool logged = false;
  for (auto backoff = std::min(kFirstBackoff, options_.connect_pause);;
       backoff = std::min(2 * backoff, options_.connect_pause)) {
    const TimePoint now = net::Clock::now();
    check_given_up();
    if (now >= deadline_)
      throw CollectiveError(
          fmt::format("replica {} could not reach replica 0 at {} within {} ({}); check that replica 0 is running "
                      "and that ADAPTDL_MASTER_ADDR and ADAPTDL_MASTER_PORT are correct",
                      options_.rank, address_, seconds_text(options_.connect_timeout), reason()));
    Fd fd = net::connect_to(options_.master_addr, options_.master_port, deadline_, why_);
    if (fd && introduce(fd.get())) return fd;
    if (now >= log_at && !std::exchange(logged, true))
      log::info(fmt::format("waiting for replica 0 at {} ({})", address_, reason()));
    std::this_thread::sleep_until(std::min<TimePoint>(net::Clock::now() + backoff, deadline_));
  }
}

// `why_before` states why the previous attempt failed, which is more informative than the timeout of this attempt.
bool Introduction::wait_readable(int fd, const std::string& why_before) {
  pollfd readable{fd, POLLIN, 0};
  int count = 0;
  do {
    check_given_up();
    count = ::poll(&readable, 1, net::poll_timeout(deadline_, kTickMs));
  } while ((count < 0 && errno == EINTR) || (count == 0 && net::Clock::now() < deadline_));
  if (count == 0) why_ = why_before.empty() ? "it accepts connections but does not answer" : why_before;
  return count > 0;
}

// Returns false if another attempt may succeed: a proxy, for example, may accept connections before rank 0 listens.
bool Introduction::introduce(int fd) {
  handshake::ConnectingEnd end(
      terms(options_),
      wire::encode(wire::Hello{static_cast<std::uint32_t>(options_.rank), static_cast<std::uint32_t>(options_.size),
                               options_.max_message, options_.job}),
      wire::kMaxAnswer);
  const std::string why_before = std::exchange(why_, "");
  const handshake::Step step = handshake::run(end, fd, [&] { return wait_readable(fd, why_before); });
  if (step == handshake::Step::kIncomplete) {
    if (why_.empty()) {
      refused_ = refused_ || end.asked();
      why_ = end.asked() ? kRefused : "it closed the connection";
    }
    return false;
  }
  const auto answer = step == handshake::Step::kProved ? wire::parse_answer(end.answer()) : std::nullopt;
  if (!answer)
    throw CollectiveError(
        end.why().empty()
            ? fmt::format("the process listening at {} is not a replica of adaptdl; check that ADAPTDL_MASTER_ADDR and "
                          "ADAPTDL_MASTER_PORT are correct",
                          address_)
            : fmt::format("the process listening at {} is not replica 0: {}", address_, end.why()));
  // The previous group may still occupy the port.
  if (!answer->accepted && options_.give_up) {
    why_ = answer->text;
    return false;
  }
  if (!answer->accepted)
    throw CollectiveError(fmt::format("replica 0 at {} refused replica {}: {}", address_, options_.rank, answer->text));
  return true;
}

class Peer final : public Engine {
 public:
  explicit Peer(const Options& options);
  ~Peer() override { close(); }

  StatePtr submit(Kind kind, Bytes value, Reduce reduce, std::string_view purpose) override;
  bool ready(Future::State& state) override;
  Bytes wait(Future::State& state) override;
  void close() override;
  std::uint16_t port() const override { return options_.master_port; }

 private:
  struct Pending {
    std::uint64_t sequence;
    Kind kind;
    std::weak_ptr<Future::State> state;
  };

  // All of these functions require the mutex; `drive` releases it while it waits.
  void await_start(TimePoint deadline);
  void drive(std::unique_lock<std::mutex>& lock, short events, TimePoint deadline);
  bool receive();
  void take_frames(std::string_view bytes);
  void on_frame(Frame frame);
  void on_result(Frame frame);
  void lost(const std::string& why);
  void fail(std::string text, Failure failure = Failure::kBroken);

  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Link> link_;
  int polling_ = 0;       // threads that are polling the connection
  bool reading_ = false;  // whether one of them polls for input
  bool started_ = false;
  std::string broken_;  // why no further call is possible, or ""
  Failure failure_ = Failure::kBroken;
  std::uint64_t calls_ = 0;
  std::deque<Pending> pending_;
};

Peer::Peer(const Options& options) : options_(options) {
  Introduction introduction(options_);
  Fd fd = introduction.run();
  link_.emplace(std::move(fd), wire::packed_bound(options_.max_message, static_cast<std::size_t>(options_.size)));
  await_start(introduction.deadline());
}

void Peer::await_start(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  const TimePoint verdict = deadline + kVerdictSlack;
  while (!started_ && broken_.empty()) {
    if (options_.give_up && options_.give_up())
      fail(kGivenUp);
    else if (net::Clock::now() >= verdict)
      fail(fmt::format("not all {1} replicas connected to replica 0 at {0} within {2}",
                       net::endpoint(options_.master_addr, options_.master_port), options_.size,
                       seconds_text(options_.connect_timeout)));
    else
      drive(lock, POLLIN, verdict);
  }
  if (!broken_.empty()) throw CollectiveError(broken_);
}

StatePtr Peer::submit(Kind kind, Bytes value, Reduce, std::string_view purpose) {
  std::unique_lock lock(mutex_);
  if (!broken_.empty()) raise(broken_, failure_);
  auto state = std::make_shared<Future::State>();
  state->engine = shared_from_this();
  state->kind = kind;
  state->sequence = ++calls_;
  state->deadline = net::Clock::now() + options_.timeout + kVerdictSlack;
  pending_.push_back({state->sequence, kind, state});

  std::string oversize = oversize_text(options_, value.size());
  const Frame header{oversize.empty() ? Type::kValue : Type::kFailed, kind, state->sequence, {}, std::string(purpose)};
  link_->queue(header, std::make_shared<const Bytes>(oversize.empty() ? std::move(value) : std::move(oversize)));
  while (broken_.empty()) {
    if (!link_->send_some()) {
      // Rank 0 may have sent the reason before it left.
      while (broken_.empty() && receive()) {
      }
      lost(link_->why());
    } else if (link_->queued_bytes() == 0) {
      break;
    } else if (net::Clock::now() >= state->deadline) {
      fail(fmt::format("{}: replica 0 did not accept the value within {}", wire::call_name(kind, calls_),
                       seconds_text(options_.timeout)));
    } else {
      drive(lock, POLLIN | POLLOUT, state->deadline);
    }
  }
  if (!state->done && !broken_.empty()) raise(broken_, failure_);
  return state;
}

bool Peer::ready(Future::State& state) {
  const std::lock_guard lock(mutex_);
  while (!state.done && receive()) {
  }
  return state.done;
}

Bytes Peer::wait(Future::State& state) {
  std::unique_lock lock(mutex_);
  while (!state.done) {
    const bool late = net::Clock::now() >= state.deadline;
    if (late && !receive())  // the result may have arrived in time without being read
      fail(fmt::format("{} did not complete within {}: replica 0 does not answer",
                       wire::call_name(state.kind, state.sequence), seconds_text(options_.timeout)));
    else if (!late)
      drive(lock, POLLIN, state.deadline);
  }
  if (state.failure) raise(state.result, *state.failure);
  return std::move(state.result);
}

// Waits until the connection is ready for `events` and receives what has arrived. If several threads wait for input,
// one of them polls, and the others wait until it has received something.
void Peer::drive(std::unique_lock<std::mutex>& lock, short events, TimePoint deadline) {
  const auto tick = std::min(deadline, net::Clock::now() + std::chrono::milliseconds(kTickMs));
  if (reading_ && events == POLLIN) {
    changed_.wait_until(lock, tick);
    return;
  }
  const bool reads = !std::exchange(reading_, true);
  ++polling_;
  pollfd ready{link_->fd(), static_cast<short>(reads ? events : events & ~POLLIN), 0};
  lock.unlock();
  const int count = ::poll(&ready, 1, net::poll_timeout(tick, kTickMs));
  lock.lock();
  --polling_;
  if (reads) reading_ = false;
  if (!broken_.empty() && polling_ == 0) link_->close();
  if (broken_.empty() && reads && count > 0 && (ready.revents & ~POLLOUT)) receive();
  if (broken_.empty() && count == 0 && net::host_is_silent(link_->fd())) lost("its host does not answer");
  changed_.notify_all();
}

// Returns true if something was received and more may follow.
bool Peer::receive() {
  if (!broken_.empty()) return false;
  std::string_view bytes;
  if (!link_->receive(bytes)) {
    lost(link_->why());
    return false;
  }
  take_frames(bytes);
  return !bytes.empty();
}

void Peer::take_frames(std::string_view bytes) {
  try {
    while (auto frame = link_->take(bytes)) on_frame(std::move(*frame));
  } catch (const CollectiveError& error) {
    fail(fmt::format("replica 0 violated the protocol: it {}", error.what()));
  }
}

void Peer::on_frame(Frame frame) {
  switch (frame.type) {
    case Type::kStart:
      started_ = true;
      return;
    case Type::kBroken:
    case Type::kMismatch:
      return fail(std::move(frame.payload), frame.type == Type::kMismatch ? Failure::kMismatch : Failure::kBroken);
    case Type::kValue:
    case Type::kFailed:
      return on_result(std::move(frame));
  }
}

void Peer::on_result(Frame frame) {
  if (pending_.empty() || pending_.front().sequence != frame.sequence || pending_.front().kind != frame.kind)
    throw CollectiveError("sent a result out of turn");
  if (const StatePtr state = pending_.front().state.lock()) {
    if (frame.type == Type::kFailed) state->failure = Failure::kCall;
    state->result = std::move(frame.payload);
    state->done = true;
  }
  pending_.pop_front();
  if (frame.kind == Kind::kTeardown && frame.type == Type::kValue)
    fail("collective communication was torn down; initialize it again");
}

void Peer::lost(const std::string& why) {
  const std::string when = !started_ ? std::string("while its peers were connecting")
                           : !pending_.empty()
                               ? "during " + wire::call_name(pending_.front().kind, pending_.front().sequence)
                           : calls_ == 0 ? std::string("before the first call")
                                         : fmt::format("after call #{}", calls_);
  fail(fmt::format("replica 0 left the job {} ({})", when, why));
}

void Peer::fail(std::string text, Failure failure) {
  if (!broken_.empty()) return;
  failure_ = failure;
  broken_ = text.empty() ? "replica 0 aborted the job" : std::move(text);
  for (const Pending& pending : pending_) {
    const StatePtr state = pending.state.lock();
    if (!state) continue;
    state->done = true;
    state->failure = failure_;
    state->result = broken_;
  }
  pending_.clear();
  if (polling_ == 0)
    link_->close();
  else
    ::shutdown(link_->fd(), SHUT_RDWR);  // wakes poll(2) in other threads, the last of which closes the link
  changed_.notify_all();
}

void Peer::close() {
  std::unique_lock lock(mutex_);
  if (!link_) return;
  fail("the communicator of this replica is closed");
  changed_.wait(lock, [this] { return polling_ == 0; });
}

}  // namespace

std::shared_ptr<Engine> make_peer(const Options& options) { return std::make_shared<Peer>(options); }

}  // namespace adaptdl::collective
