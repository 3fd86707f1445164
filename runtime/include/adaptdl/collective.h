// Collective calls between the replicas of a job on small values: flags, counters, JSON.
//
// Rank 0 gathers each value over TCP, reduces them in the order of ranks, and sends everyone the result. That makes any
// reduction possible and the result the same on all replicas, bit for bit. It is not meant for tensors: those go
// through LibTorch's process groups.
//
// Calls are matched by their order: every replica makes the same calls in the same order. A call of another kind in the
// same place (an allreduce against a broadcast), or for another purpose, is a MismatchError on all replicas.
//
// Failures: a peer that dies, leaves early or breaks the protocol makes every pending and later call on every other
// replica throw CollectiveError, which names that peer's rank, within a second; no call hangs. After an error the
// communicator is of no more use: replicas exit, and the job restarts from its checkpoint.
// What a call itself gets wrong (its reduction throws, a value is too large) is a CallError on all replicas alike; the
// next calls work. docs/failures.md has the whole list.
//
// Threading: one communicator is used by one thread at a time; a Future may be waited for in another thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "adaptdl/error.h"

namespace adaptdl::collective {

// A collective call failed. The message names the rank that caused it, if one did.
class CollectiveError : public Error {
  using Error::Error;
};

// The calls themselves are wrong, on all replicas alike, and no replica is lost. Unless it is a MismatchError, the next
// calls work.
class CallError : public CollectiveError {
  using CollectiveError::CollectiveError;
};

// Replicas are not in the same place of their programs, for instance because they made different calls. No replica is
// to blame, and none of them can continue.
class MismatchError : public CallError {
  using CallError::CallError;
};

// A value of a collective call.
using Bytes = std::string;

// Reduces two values to one: called as reduce(reduce(v0, v1), v2), ... in the order of ranks, on rank 0 only, on the
// calling thread or one of the communicator's, which it must not call. When it throws, the call throws a CallError with
// the same text on every replica.
using Reduce = std::function<Bytes(Bytes accumulated, const Bytes& next)>;
using ReduceJson = std::function<nlohmann::json(nlohmann::json accumulated, const nlohmann::json& next)>;

// Adds numbers, joins arrays and strings, and adds objects key by key; a key that only one of them has stays as it is.
// Whole numbers stay whole. Throws CollectiveError on values that do not match, on truth values and null (which have no
// sum), and when a whole number overflows.
nlohmann::json sum(nlohmann::json a, const nlohmann::json& b);

// How a replica finds the others, and how long it waits for them.
struct Options {
  // Name or address at which rank 0 can be reached; "0.0.0.0" is this machine. Rank 0 itself listens there if it is a
  // loopback address or "localhost", else on all interfaces.
  std::string master_addr = "127.0.0.1";
  // 0: rank 0 takes a free one and tells it to `on_listening`; of no use to the others.
  std::uint16_t master_port = 0;
  // The rank of this replica, 0 <= rank < size.
  int rank = 0;
  // The number of replicas, >= 1.
  int size = 1;
  // Name of the job, up to 1 KiB: rank 0 refuses replicas of another.
  std::string job;
  // The job's secret. Replicas prove to each other that they have it; connections without a valid proof are closed.
  // Data is not encrypted. If empty, anyone who can reach rank 0's port and knows the job's name and size can join.
  std::string secret;
  // For all replicas to come up. A connection refused, or a name that does not resolve yet, is tried again until then.
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(5);
  // The longest that a replica sleeps before it tries again, > 0: on average half of it is lost when rank 0 comes up.
  std::chrono::milliseconds connect_pause{200};
  // Of one call, from the first replica that makes it to the last: longer than the slowest step of a replica. Rank 0
  // names those that are missing; the others give it a quarter of a second more to say so.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // Bytes of one value or result, the same on all replicas. A larger one is an error, not an allocation. Rank 0 holds
  // up to two for each replica.
  std::size_t max_message = std::size_t{64} << 20;
  // Asked about once a second while replicas connect, on any thread: whether to give up. With it, a refusal is no error
  // until then: another group may still be at that port. Empty: only the timeout ends it.
  std::function<bool()> give_up = {};
};

// The options that the environment gives (see env.h). Throws UsageError as env does.
Options options_from_env();

// The result of an asynchronous call.
class Future {
 public:
  Future() = default;
  // Whether it has a result to get.
  bool valid() const noexcept { return static_cast<bool>(state_); }
  // Whether get() returns or throws without waiting. REQUIRES valid().
  bool ready() const;
  // Waits for the result and gives it. REQUIRES valid(). Throws CollectiveError when the call failed or timed out.
  // May be called once; the future is invalid afterwards.
  Bytes get();

  struct State;

 private:
  friend class Communicator;
  explicit Future(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// The connections of one replica to the others. A process normally has one (see `initialize`); tests run several as
// threads.
class Communicator {
 public:
  // Connects to rank 0, or as rank 0 accepts all others, and returns once all `size` replicas are connected. Throws
  // UsageError on options that make no sense and CollectiveError when the port is taken, when peers do not come in
  // time, when one leaves meanwhile, or when rank 0 refuses this replica: its rank is taken, its size or job is
  // another. Connections that are no replicas of this job are dropped and disturb nobody. `on_listening`, if given, is
  // called on rank 0 with the port it listens on, before it waits for its peers. A single replica (size 1) neither
  // listens nor connects.
  explicit Communicator(Options options, const std::function<void(std::uint16_t port)>& on_listening = {});
  // One that has the rank and size of the options and connects to nobody: each call is one of `refuse`, which throws.
  static std::unique_ptr<Communicator> refusing(Options options, std::function<void()> refuse);
  // Leaves the job: peers that still wait for this replica get a CollectiveError, as do futures of this one. Results
  // that rank 0 has for others are still delivered, which takes it a second at most once a peer stops reading.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // The rank of this replica.
  int rank() const noexcept;
  // The number of replicas.
  int size() const noexcept;
  std::uint16_t port() const noexcept;  // of rank 0; master_port for a single replica

  // In all calls, `purpose` says what the call is for ("accumulator loss"), up to 255 bytes: a call for one purpose is
  // not taken for one for another.

  // Reduces `value` over all replicas; everyone gets the result. Blocks until all have called.
  Bytes allreduce(Bytes value, const Reduce& reduce, std::string_view purpose = {});
  // The same without blocking: sends the value and returns at once. (A replica that is a thousand calls, or max_message
  // bytes, ahead of the slowest waits for it, up to the timeout.) A Future that is dropped does not undo the call.
  Future allreduce_async(Bytes value, Reduce reduce, std::string_view purpose = {});
  // Everyone gets the value of rank 0; `value` is ignored on the others.
  Bytes broadcast(Bytes value, std::string_view purpose = {});
  // Everyone gets the values of all replicas, by rank. The sum of their sizes is bounded by max_message.
  std::vector<Bytes> allgather(Bytes value, std::string_view purpose = {});
  // Blocks until all replicas have called it, then closes the connections on all of them without an error anywhere.
  void teardown();

  // The same on JSON values.
  nlohmann::json allreduce(const nlohmann::json& value, const ReduceJson& reduce = sum, std::string_view purpose = {});
  nlohmann::json broadcast(const nlohmann::json& value, std::string_view purpose = {});

 private:
  struct Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The communicator of this process; arguments as of Communicator's constructor, from any one thread.
// Throws Error if it is initialized already, and UsageError on several replicas without a port that all of them know.
void initialize(Options options = options_from_env(), const std::function<void(std::uint16_t port)>& on_listening = {});
// Whether world() exists.
bool initialized() noexcept;
// The communicator of this process. Throws Error, which says to call init_process_group, if it is not initialized.
Communicator& world();
// Communicator::teardown, after which the process may initialize again. Throws Error if it is not initialized.
void teardown();

// Shorthands for world().
inline nlohmann::json allreduce(const nlohmann::json& value, const ReduceJson& reduce = sum,
                                std::string_view purpose = {}) {
  return world().allreduce(value, reduce, purpose);
}
// Without blocking, as Communicator::allreduce_async; get() of the result waits for it, as Future::get does.
std::future<nlohmann::json> allreduce_async(const nlohmann::json& value, const ReduceJson& reduce = sum,
                                            std::string_view purpose = {});
inline nlohmann::json broadcast(const nlohmann::json& value, std::string_view purpose = {}) {
  return world().broadcast(value, purpose);
}

}  // namespace adaptdl::collective
