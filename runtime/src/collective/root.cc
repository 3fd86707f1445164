#include "collective/root.h"

#include <fmt/core.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "adaptdl/log.h"
#include "base/counted.h"
#include "base/signals_blocked.h"

namespace adaptdl::collective {
namespace {

using wire::Frame;
using wire::Kind;
using wire::Type;

// Values of epoll_data that are not peers' ranks. Rank 0 has no link, so 0 is available.
constexpr std::uint64_t kWake = 0;
constexpr std::uint64_t kGate = std::uint64_t{1} << 32;
constexpr std::size_t kMaxPending = 256;     // connections still in the handshake, beyond the job's size
constexpr std::size_t kMaxUnread = 1 << 20;  // bytes of unread results that a replica may have before it must wait
// How long a call on rank 0 waits beyond its deadline for the I/O thread to report which replicas are missing. On a
// busy machine, that thread may run late.
constexpr std::chrono::seconds kOwnVerdictSlack{10};

}  // namespace

Root::Root(const Options& options)
    : options_(options),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      calls_(options_) {
  if (!epoll_ || !wake_) throw CollectiveError("no file descriptors left for collective calls; raise `ulimit -n`");
  net::Listener listener = net::listen_on(options_.master_addr, options_.master_port);
  port_ = listener.port;
  gate_.emplace(Gate::Options{.terms = terms(options_),
                              .max_request = wire::kMaxHello,
                              .max_pending = kMaxPending + static_cast<std::size_t>(options_.size)},
                std::move(listener.fd),
                [this](std::string_view request, const std::string& from) { return judge(request, from); });
  replicas_.resize(static_cast<std::size_t>(options_.size));
  unconnected_ = replicas_.size() - 1;
  connect_deadline_ = net::Clock::now() + options_.connect_timeout;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWake;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  event.data.u64 = kGate;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, gate_->fd(), &event);
}

void Root::start() {
  // The program's signals must be delivered to its own threads.
  {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
  }

  std::unique_lock lock(mutex_);
  const auto settled = [this] { return phase_ != Phase::kConnecting; };
  if (!changed_.wait_for(lock, kLogAfter, settled)) {
    log::info(fmt::format("waiting on port {} for {}", port_, replicas_text(missing_ranks())));
    changed_.wait(lock, settled);
  }
  if (phase_ == Phase::kBroken) throw CollectiveError(broken_);
}

void Root::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    fail("the communicator of this replica is closed");
  }
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
  changed_.notify_all();
}

// ---- calls of rank 0 ----

StatePtr Root::submit(Kind kind, Bytes value, Reduce reduce, std::string_view purpose) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kRunning) raise(broken_, failure_);
  auto state = std::make_shared<Future::State>();
  state->engine = shared_from_this();
  state->kind = kind;
  state->sequence = calls_.calls(0) + 1;
  state->deadline = net::Clock::now() + options_.timeout + kOwnVerdictSlack;
  own_.push_back({std::move(reduce), state});
  const std::string oversize = oversize_text(options_, value.size());
  add_part(0, kind, !oversize.empty(), oversize.empty() ? std::move(value) : oversize,
           std::string(purpose.substr(0, wire::kMaxPurpose)));
  complete_calls();
  if (std::exchange(notify_, false)) changed_.notify_all();
  return state;
}

bool Root::ready(Future::State& state) {
  const std::lock_guard lock(mutex_);
  return state.done;
}

Bytes Root::wait(Future::State& state) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, state.deadline, [&] { return state.done; }))
    fail(fmt::format("{} did not complete within {}", wire::call_name(state.kind, state.sequence),
                     seconds_text(options_.timeout)));
  if (state.failure) raise(state.result, *state.failure);
  return std::move(state.result);
}

// ---- input and output ----

void Root::run() {
  ::pthread_setname_np(::pthread_self(), "adaptdl-calls");
  std::unique_lock lock(mutex_);
  TimePoint last_tick = net::Clock::now();
  while (!closing_ && phase_ != Phase::kTornDown) {
    const int timeout = next_timeout(net::Clock::now());
    epoll_event events[64];
    lock.unlock();
    const int count = ::epoll_wait(epoll_.get(), events, 64, timeout);
    lock.lock();
    for (int i = 0; i < count; ++i) on_event(events[i].data.u64, events[i].events);
    const TimePoint now = net::Clock::now();
    const auto deadline = call_deadline();
    if (now - last_tick >= std::chrono::milliseconds(kTickMs) || now >= connect_deadline_ ||
        (deadline && now >= *deadline)) {
      on_tick(now);
      last_tick = now;
    }
    if (std::exchange(notify_, false)) {
      lock.unlock();  // a waiter that wakes up needs the mutex
      changed_.notify_all();
      lock.lock();
    }
  }
  gate_->close();
  lock.unlock();  // from here on, no other thread uses a link
  std::vector<Link*> links;
  for (Replica& replica : replicas_)
    if (replica.link) links.push_back(&*replica.link);
  deliver_and_close(links);
}

int Root::next_timeout(TimePoint now) const {
  TimePoint deadline = now + std::chrono::milliseconds(kTickMs);
  if (phase_ == Phase::kConnecting) deadline = std::min(deadline, connect_deadline_);
  if (const auto call = call_deadline()) deadline = std::min(deadline, *call);
  return net::poll_timeout(deadline, kTickMs);
}

void Root::on_event(std::uint64_t data, std::uint32_t events) {
  if (data == kWake) return;
  if (data == kGate) return gate_->serve();
  const int rank = static_cast<int>(data);
  Replica& replica = replicas_[static_cast<std::size_t>(rank)];
  if (!replica.link->open()) return;
  if (events & EPOLLOUT) flush(rank);
  if (!(replica.events & EPOLLIN)) {
    // The replica is far ahead, so its data is not read, but its loss must be noticed.
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) lost(rank, "connection closed");
    return;
  }
  if (!replica.link->open() || !(events & ~std::uint32_t{EPOLLOUT})) return;
  std::string_view bytes;
  if (!replica.link->receive(bytes)) return lost(rank, replica.link->why());
  if (phase_ == Phase::kBroken) return;  // the data was read only so that the replica never blocks while sending
  try {
    while (auto frame = replica.link->take(bytes)) on_frame(rank, std::move(*frame));
  } catch (const CollectiveError& error) {
    fail(fmt::format("replica {} violated the protocol {}: it {}", rank, when(), error.what()));
  }
  complete_calls();
}

void Root::on_frame(int rank, Frame frame) {
  if (phase_ != Phase::kRunning) throw CollectiveError("made a call before all replicas were connected");
  const bool is_part = frame.type == Type::kValue || frame.type == Type::kFailed;
  if (!is_part || frame.sequence != calls_.calls(rank) + 1) throw CollectiveError("sent a frame out of turn");
  add_part(rank, frame.kind, frame.type == Type::kFailed, std::move(frame.payload), std::move(frame.purpose));
}

void Root::on_tick(TimePoint now) {
  gate_->on_tick(now);
  for (int rank = 1; rank < options_.size; ++rank) {
    const auto& link = replicas_[static_cast<std::size_t>(rank)].link;
    if (link && link->open() && net::host_is_silent(link->fd())) lost(rank, "its host does not answer");
  }
  if (phase_ == Phase::kConnecting && options_.give_up && options_.give_up()) return fail(kGivenUp);
  if (phase_ == Phase::kConnecting && now >= connect_deadline_) {
    const std::string& refusal = gate_->last_refusal();
    fail(fmt::format("{} of {} did not connect to port {} within {}{}{}", replicas_text(missing_ranks()), options_.size,
                     port_, seconds_text(options_.connect_timeout), refusal.empty() ? "" : "; ", refusal));
  }
  const auto deadline = call_deadline();
  if (deadline && now >= *deadline)
    fail(fmt::format("no value from {} {} within {}", replicas_text(missing_ranks()), when(),
                     seconds_text(options_.timeout)));
}

Gate::Verdict Root::judge(std::string_view request, const std::string& from) {
  const auto hello = wire::parse_hello(request);
  const std::string why = hello ? objection(*hello) : "its request is malformed";
  if (!why.empty()) return {wire::encode(wire::Answer{false, why}), {}, why};
  const auto rank = static_cast<int>(hello->rank);
  return {wire::encode(wire::Answer{true, ""}), [this, rank, from](Fd fd) { admit(rank, std::move(fd), from); }};
}

// Returns why the replica cannot join, or "" if it can.
std::string Root::objection(const wire::Hello& hello) const {
  const auto size = static_cast<std::uint32_t>(options_.size);
  if (hello.job != options_.job) {
    const auto name = [](const std::string& job) { return job.empty() ? "an unnamed job" : "job '" + job + "'"; };
    return fmt::format("it belongs to {}, but this is {}", name(hello.job), name(options_.job));
  }
  if (hello.size != size)
    return fmt::format("it expects {}, but this job has {}", counted(hello.size, "replica"), size);
  if (hello.rank == 0 || hello.rank >= size)
    return fmt::format("rank {} cannot join: expected a rank from 1 to {}", hello.rank, size - 1);
  if (hello.max_message != options_.max_message)
    return fmt::format("its max_message is {}, but this job's is {}", hello.max_message, options_.max_message);
  const Replica& replica = replicas_[hello.rank];
  if (phase_ == Phase::kBroken) return "the job has failed: " + broken_;
  if (!replica.from.empty())
    return fmt::format("rank {} is already in use by a replica at {}", hello.rank, replica.from);
  return "";
}

void Root::admit(int rank, Fd fd, std::string from) {
  Replica& replica = replicas_[static_cast<std::size_t>(rank)];
  replica.link.emplace(std::move(fd), options_.max_message);
  replica.from = std::move(from);
  epoll_event event{};
  event.data.u64 = static_cast<std::uint64_t>(rank);
  event.events = replica.events = EPOLLIN | EPOLLRDHUP;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, replica.link->fd(), &event);
  if (--unconnected_ > 0) return;
  phase_ = Phase::kRunning;
  connect_deadline_ = TimePoint::max();
  send_all({Type::kStart, Kind::kAllreduce, 0, {}});
  notify_ = true;
}

// Sends what the kernel accepts; epoll reports when the rest can be sent.
void Root::flush(int rank) {
  Replica& replica = replicas_[static_cast<std::size_t>(rank)];
  if (!replica.link->send_some()) return lost(rank, replica.link->why());
  watch(rank);
}

// Stops reading from a replica that is far ahead or does not read its results, so that the replica blocks in its call.
void Root::watch(int rank) {
  Replica& replica = replicas_[static_cast<std::size_t>(rank)];
  const bool too_far =
      phase_ == Phase::kRunning && (calls_.too_far_ahead(rank) || replica.link->queued_bytes() > kMaxUnread);
  epoll_event event{};
  event.data.u64 = static_cast<std::uint64_t>(rank);
  event.events = (too_far ? 0u : std::uint32_t{EPOLLIN}) | EPOLLRDHUP;
  if (replica.link->queued_bytes() > 0) event.events |= EPOLLOUT;
  if (event.events == replica.events) return;
  replica.events = event.events;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, replica.link->fd(), &event);
}

// ---- the calls themselves ----

void Root::add_part(int rank, Kind kind, bool failed, Bytes value, std::string purpose) {
  calls_.add(rank, {kind, failed, std::move(value), std::move(purpose), net::Clock::now()});
  if (replicas_[static_cast<std::size_t>(rank)].link) watch(rank);
}

void Root::complete_calls() {
  while (phase_ == Phase::kRunning && calls_.ready()) complete_call();
}

void Root::complete_call() {
  if (auto mismatch = calls_.mismatch_text(); !mismatch.empty()) return fail(std::move(mismatch), Failure::kMismatch);
  const Frame result = calls_.complete(own_.front().reduce);
  if (result.kind == Kind::kTeardown) {
    gate_->close();  // before any replica is notified, because a notified replica may initialize again on the same port
    phase_ = Phase::kTornDown;
    broken_ = "collective communication was torn down; initialize it again";
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  }
  finish_own(result);
  send_all(result);
}

void Root::finish_own(const Frame& result) {
  if (const StatePtr state = own_.front().state.lock()) {
    if (result.type == Type::kFailed) state->failure = Failure::kCall;
    state->result = result.payload;
    state->done = true;
    notify_ = true;
  }
  own_.pop_front();
}

void Root::send_all(const Frame& frame) {
  const auto payload = std::make_shared<const Bytes>(frame.payload);
  // The frame is queued for all replicas before any of it is sent, so that the others receive it even if one is lost.
  for (Replica& replica : replicas_)
    if (replica.link && replica.link->open()) replica.link->queue(frame, payload);
  for (int rank = 1; rank < options_.size; ++rank) {
    const auto& link = replicas_[static_cast<std::size_t>(rank)].link;
    if (link && link->open()) flush(rank);
  }
}

// ---- failures ----

void Root::lost(int rank, const std::string& why) {
  Replica& replica = replicas_[static_cast<std::size_t>(rank)];
  replica.link->close();
  if (phase_ == Phase::kConnecting || phase_ == Phase::kRunning)
    fail(fmt::format("replica {} left the job {} ({})", rank, when(), why));
}

void Root::fail(std::string text, Failure failure) {
  if (phase_ == Phase::kBroken || phase_ == Phase::kTornDown) return;
  failure_ = failure;
  phase_ = Phase::kBroken;
  connect_deadline_ = TimePoint::max();
  broken_ = std::move(text);
  if (!closing_)
    send_all({failure == Failure::kMismatch ? Type::kMismatch : Type::kBroken, Kind::kAllreduce, 0,
              broken_.substr(0, wire::kMaxText), ""});
  for (const Own& own : own_) {
    const StatePtr state = own.state.lock();
    if (!state) continue;
    state->done = true;
    state->failure = failure_;
    state->result = broken_;
  }
  own_.clear();
  changed_.notify_all();
}

// Returns the replicas that have not connected or, once all have connected, those that have not made the current call.
std::vector<int> Root::missing_ranks() const {
  if (phase_ != Phase::kConnecting) return calls_.missing_ranks();
  std::vector<int> ranks;
  for (int rank = 1; rank < options_.size; ++rank)
    if (replicas_[static_cast<std::size_t>(rank)].from.empty()) ranks.push_back(rank);
  return ranks;
}

// Returns the current call's deadline, or nullopt if no replica has made the call yet.
std::optional<Root::TimePoint> Root::call_deadline() const {
  if (phase_ != Phase::kRunning) return std::nullopt;
  const auto first = calls_.first_arrival();
  return first ? std::optional(*first + options_.timeout) : std::nullopt;
}

// Describes the current phase, for example "during allreduce #15".
std::string Root::when() const { return phase_ == Phase::kConnecting ? "while it was connecting" : calls_.when(); }

std::shared_ptr<Engine> make_root(const Options& options, const std::function<void(std::uint16_t)>& on_listening) {
  auto root = std::make_shared<Root>(options);
  if (on_listening) on_listening(root->port());
  root->start();
  return root;
}

}  // namespace adaptdl::collective
