#include "adaptdl/collective.h"

#include <fmt/core.h>
#include <unistd.h>

#include <limits>
#include <utility>

#include "adaptdl/env.h"
#include "base/counted.h"
#include "collective/engine.h"
#include "collective/json.h"
#include "collective/world.h"

namespace adaptdl::collective {

using nlohmann::json;
using wire::Kind;

namespace {

// Longer timeouts are shortened to this value, so that adding them to the current time does not overflow.
constexpr std::chrono::hours kForever{24 * 365 * 100};

// The engine for a single replica: every call completes immediately with its own value.
class Solo final : public Engine {
 public:
  explicit Solo(const Options& options) : options_(options) {}

  StatePtr submit(Kind kind, Bytes value, Reduce, std::string_view) override {
    if (!closed_.empty()) throw CollectiveError(closed_);
    auto state = std::make_shared<Future::State>();
    state->engine = shared_from_this();
    state->done = true;
    state->result = oversize_text(options_, value.size());
    if (!state->result.empty()) state->failure = Failure::kCall;
    if (!state->failure) state->result = kind == Kind::kAllgather ? wire::pack({value}) : std::move(value);
    if (kind == Kind::kTeardown) closed_ = "collective communication was torn down; initialize it again";
    return state;
  }
  bool ready(Future::State&) override { return true; }
  Bytes wait(Future::State& state) override {
    if (state.failure) raise(state.result, *state.failure);
    return std::move(state.result);
  }
  void close() override {}
  std::uint16_t port() const override { return options_.master_port; }

 private:
  const Options options_;
  std::string closed_;
};

// The engine that refuses every call, used until the real one exists.
class Refusal final : public Engine {
 public:
  explicit Refusal(std::function<void()> refuse) : refuse_(std::move(refuse)) {}
  StatePtr submit(Kind, Bytes, Reduce, std::string_view) override {
    refuse_();
    throw CollectiveError("this communicator does not accept calls");
  }
  bool ready(Future::State&) override { return false; }
  Bytes wait(Future::State&) override { return {}; }
  void close() override {}
  std::uint16_t port() const override { return 0; }

 private:
  const std::function<void()> refuse_;
};

void check(Options& options) {
  const auto refuse = [](const std::string& why) { throw UsageError("invalid collective options: " + why); };
  if (options.size < 1) refuse(fmt::format("the number of replicas must be at least 1, got {}", options.size));
  if (options.rank < 0 || options.rank >= options.size)
    refuse(fmt::format("the rank must be from 0 to {2} with {1}, got {0}", options.rank,
                       counted(options.size, "replica"), options.size - 1));
  if (options.rank > 0 && options.master_port == 0)
    refuse(fmt::format("replica {} needs the port of replica 0; set ADAPTDL_MASTER_PORT", options.rank));
  if (options.master_addr.empty()) refuse("the address of replica 0 is empty; set ADAPTDL_MASTER_ADDR");
  if (options.job.size() > wire::kMaxJob)
    refuse(fmt::format("the name of the job must be at most {} bytes long", wire::kMaxJob));
  const auto none = std::chrono::milliseconds::zero();
  if (options.timeout <= none || options.connect_timeout <= none || options.connect_pause <= none)
    refuse("timeouts and pauses must be above 0");
  options.timeout = std::min<std::chrono::milliseconds>(options.timeout, kForever);
  options.connect_timeout = std::min<std::chrono::milliseconds>(options.connect_timeout, kForever);
  // Keeps sums of sizes from overflowing; no machine has that much memory.
  options.max_message = std::min(options.max_message, std::numeric_limits<std::size_t>::max() / 4);
}

std::unique_ptr<Communicator>& process_communicator() {
  static std::unique_ptr<Communicator> communicator;
  return communicator;
}

}  // namespace

handshake::Terms terms(const Options& options) { return {options.secret, "collective"}; }

std::string seconds_text(std::chrono::milliseconds duration) {
  return fmt::format("{:g}s", std::chrono::duration<double>(duration).count());
}

std::string replicas_text(const std::vector<int>& ranks) {
  std::string list;
  for (const int rank : ranks) list += fmt::format("{}{}", list.empty() ? "" : ", ", rank);
  return fmt::format("replica{} {}", ranks.size() == 1 ? "" : "s", list);
}

std::string oversize_text(const Options& options, std::size_t size) {
  if (size <= options.max_message) return "";
  return fmt::format("a value of {} bytes is larger than max_message ({} bytes)", size, options.max_message);
}

void raise(const std::string& why, Failure failure) {
  switch (failure) {
    case Failure::kCall:
      throw CallError(why);
    case Failure::kMismatch:
      throw MismatchError(why);
    case Failure::kBroken:
      break;
  }
  throw CollectiveError(why);
}

Options options_from_env() {
  Options options;
  options.master_addr = env::master_addr();
  options.master_port = static_cast<std::uint16_t>(env::master_port());
  options.rank = env::replica_rank();
  options.size = env::num_replicas();
  options.job = env::job_id().value_or("");
  options.secret = env::supervisor_token().value_or("");
  options.timeout = env::collective_timeout();
  options.connect_timeout = env::connect_timeout();
  return options;
}

// ---- Future ----

bool Future::ready() const { return state_->engine->ready(*state_); }

Bytes Future::get() {
  const auto state = std::exchange(state_, nullptr);
  return state->engine->wait(*state);
}

// ---- Communicator ----

struct Communicator::Impl {
  pid_t process = ::getpid();
  Options options;
  std::shared_ptr<Engine> engine;

  Bytes call(Kind kind, Bytes value, std::string_view purpose, Reduce reduce = {}) {
    const StatePtr state = engine->submit(kind, std::move(value), std::move(reduce), purpose);
    return engine->wait(*state);
  }
};

Communicator::Communicator(Options options, const std::function<void(std::uint16_t)>& on_listening)
    : impl_(std::make_unique<Impl>()) {
  check(options);
  impl_->engine = options.size == 1   ? std::make_shared<Solo>(options)
                  : options.rank == 0 ? make_root(options, on_listening)
                                      : make_peer(options);
  impl_->options = std::move(options);
}

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<Communicator> Communicator::refusing(Options options, std::function<void()> refuse) {
  auto impl = std::make_unique<Impl>();
  impl->engine = std::make_shared<Refusal>(std::move(refuse));
  impl->options = std::move(options);
  return std::unique_ptr<Communicator>(new Communicator(std::move(impl)));
}

Communicator::~Communicator() {
  // In a forked child that runs destructors, the connections still belong to the parent, so they are not closed.
  if (impl_->process == ::getpid())
    impl_->engine->close();
  else [[maybe_unused]]
    const Impl* left = impl_.release();
}

int Communicator::rank() const noexcept { return impl_->options.rank; }
int Communicator::size() const noexcept { return impl_->options.size; }
std::uint16_t Communicator::port() const noexcept { return impl_->engine->port(); }

Bytes Communicator::allreduce(Bytes value, const Reduce& reduce, std::string_view purpose) {
  return impl_->call(Kind::kAllreduce, std::move(value), purpose, reduce);
}

Future Communicator::allreduce_async(Bytes value, Reduce reduce, std::string_view purpose) {
  return Future(impl_->engine->submit(Kind::kAllreduce, std::move(value), std::move(reduce), purpose));
}

Bytes Communicator::broadcast(Bytes value, std::string_view purpose) {
  if (impl_->options.rank != 0) value.clear();
  return impl_->call(Kind::kBroadcast, std::move(value), purpose);
}

std::vector<Bytes> Communicator::allgather(Bytes value, std::string_view purpose) {
  const Bytes packed = impl_->call(Kind::kAllgather, std::move(value), purpose);
  return wire::unpack(packed, static_cast<std::size_t>(impl_->options.size));
}

void Communicator::teardown() {
  impl_->call(Kind::kTeardown, {}, {});
  impl_->engine->close();
}

namespace {

Reduce on_bytes(const ReduceJson& reduce) {
  return [reduce](const Bytes& accumulated, const Bytes& next) {
    return to_bytes(reduce(from_bytes(accumulated), from_bytes(next)));
  };
}

}  // namespace

json Communicator::allreduce(const json& value, const ReduceJson& reduce, std::string_view purpose) {
  return from_bytes(allreduce(to_bytes(value), on_bytes(reduce), purpose));
}

std::future<json> allreduce_async(const json& value, const ReduceJson& reduce, std::string_view purpose) {
  return std::async(
      std::launch::deferred, [](Future future) { return from_bytes(future.get()); },
      world().allreduce_async(to_bytes(value), on_bytes(reduce), purpose));
}

json Communicator::broadcast(const json& value, std::string_view purpose) {
  return from_bytes(broadcast(to_bytes(value), purpose));
}

// ---- The communicator of this process ----

void initialize(Options options, const std::function<void(std::uint16_t)>& on_listening) {
  if (initialized()) throw Error("collective communication is already initialized; call teardown first");
  if (options.size > 1 && options.master_port == 0 && !on_listening)
    throw UsageError(fmt::format(
        "{} replicas cannot find each other without the port of replica 0; set ADAPTDL_MASTER_PORT", options.size));
  process_communicator() = std::make_unique<Communicator>(std::move(options), on_listening);
}

void replace_world(std::unique_ptr<Communicator> communicator) { process_communicator() = std::move(communicator); }

bool initialized() noexcept { return static_cast<bool>(process_communicator()); }

Communicator& world() {
  if (!initialized()) throw Error("collective communication is not initialized; call init_process_group first");
  return *process_communicator();
}

void teardown() {
  world().teardown();
  process_communicator().reset();
}

}  // namespace adaptdl::collective
