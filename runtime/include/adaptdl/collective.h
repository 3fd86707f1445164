// Collective calls on small values (flags, counters, JSON) between the replicas of a job.
//
// Rank 0 gathers the values over TCP, reduces them in rank order, and sends the result to all replicas. Any reduction
// is therefore possible, and all replicas get the same result, bit for bit. Do not send tensors this way; use
// LibTorch's process groups for them.
//
// Calls are matched by their order: every replica must make the same calls in the same order. If replicas make calls of
// different kinds (an allreduce and a broadcast) or for different purposes, all of them throw MismatchError.
//
// Failures: if a peer dies, leaves early or breaks the protocol, every pending and later call on every other replica
// throws CollectiveError, which names that peer's rank. The calls throw within a second, or within about 25 s if the
// peer's host disappears. No call hangs. The communicator cannot be used after such an error.
// If only the call itself fails (its reduction throws, a value is too large), all replicas throw CallError, and later
// calls work. docs/failures.md contains the complete list.
//
// Threading: only one thread at a time may use a communicator; another thread may wait for a Future.
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

// A collective call failed. The message names the rank that caused the failure, if there is one.
class CollectiveError : public Error {
  using Error::Error;
};

// A call failed in the same way on all replicas, and no replica was lost. Later calls work, except after a
// MismatchError.
class CallError : public CollectiveError {
  using CollectiveError::CollectiveError;
};

// The replicas are at different points in their programs, for example because they made different calls. The error
// names no replica as the cause, and no replica can continue.
class MismatchError : public CallError {
  using CallError::CallError;
};

// The value of a collective call.
using Bytes = std::string;

// Reduces two values to one. It is called as reduce(reduce(v0, v1), v2), ... in rank order, on rank 0 only, by the
// calling thread or the communicator's thread. It must not use the communicator. If it throws, the collective call
// throws CallError with the same text on every replica.
using Reduce = std::function<Bytes(Bytes accumulated, const Bytes& next)>;
using ReduceJson = std::function<nlohmann::json(nlohmann::json accumulated, const nlohmann::json& next)>;

// Adds numbers, concatenates arrays and strings, and adds objects key by key; a key that occurs in only one object
// keeps its value. The sum of integers is an integer. Throws CollectiveError on types that do not match, on booleans
// and null (which have no sum), and if an integer overflows.
nlohmann::json sum(nlohmann::json a, const nlohmann::json& b);

// Options that define how a replica finds the others and how long it waits for them.
struct Options {
  // The host name or address at which rank 0 can be reached; "0.0.0.0" means this machine. If the value is a loopback
  // address or "localhost", rank 0 listens only there; otherwise, it listens on all interfaces.
  std::string master_addr = "127.0.0.1";
  // The port of rank 0. If 0, rank 0 chooses a free port and passes it to `on_listening`; all other ranks require a
  // nonzero port.
  std::uint16_t master_port = 0;
  // The rank of this replica, 0 <= rank < size.
  int rank = 0;
  // The number of replicas, >= 1.
  int size = 1;
  // The name of the job, up to 1 KiB. Rank 0 refuses replicas of other jobs.
  std::string job;
  // The job's secret. Replicas prove to each other that they know it; connections without a valid proof are closed.
  // Data is not encrypted. If empty, any process that can reach rank 0 and knows the job's name and size can join.
  std::string secret;
  // How long to wait for all replicas to connect. During this time, refused connections and unresolved host names are
  // retried.
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(5);
  // The maximum pause between two attempts to connect, > 0. On average, a replica connects half this time after rank 0
  // has come up.
  std::chrono::milliseconds connect_pause{200};
  // The maximum time between the first and the last replica's arrival at a call. It must exceed the duration of any
  // replica's slowest step. When it has passed, rank 0 reports which replicas are missing; the other ranks wait 0.25 s
  // longer for that report.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // The maximum size of a value or result in bytes; it must be the same on all replicas. A larger value is an error,
  // and no memory is allocated for it. Rank 0 holds up to two values per replica.
  std::size_t max_message = std::size_t{64} << 20;
  // Called about once a second while replicas connect, on any thread; if it returns true, connecting fails. If this
  // option is set, a replica that rank 0 refuses tries again, since the previous group may still be using the port.
  // Default: never gives up.
  std::function<bool()> give_up = {};
};

// Returns the options that the environment defines (see env.h). Throws UsageError under the same conditions as the
// functions in env.h.
Options options_from_env();

// The result of an asynchronous call.
class Future {
 public:
  Future() = default;
  // Returns whether this future refers to a call whose result has not been retrieved yet.
  bool valid() const noexcept { return static_cast<bool>(state_); }
  // Returns whether get() would return or throw without waiting. REQUIRES valid().
  bool ready() const;
  // Waits for the result and returns it; the future is invalid afterwards. Throws CollectiveError if the call failed or
  // timed out. REQUIRES valid().
  Bytes get();

  struct State;

 private:
  friend class Communicator;
  explicit Future(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// The connections of one replica to the others. A process normally has one communicator (see `initialize`); tests
// create several in one process, each used by its own thread.
class Communicator {
 public:
  // Connects to rank 0 (on rank 0: accepts all other replicas), and returns once all `size` replicas are connected. A
  // single replica (size 1) neither listens nor connects. `on_listening`, if given, is called on rank 0 with the port
  // it listens on, before it waits for its peers. Connections that are not from replicas of this job are dropped.
  // Throws UsageError on invalid options, Error if rank 0 cannot listen on the port, and CollectiveError if peers do
  // not connect in time, if one leaves before all are connected, or if rank 0 refuses this replica because its rank is
  // taken or its size, job or max_message differs.
  explicit Communicator(Options options, const std::function<void(std::uint16_t port)>& on_listening = {});
  // Returns a communicator that does not connect; its rank and size are taken from the options. Each of its calls
  // invokes `refuse`, which must throw.
  static std::unique_ptr<Communicator> refusing(Options options, std::function<void()> refuse);
  // Leaves the job. On other replicas, calls that are still waiting for this replica fail with CollectiveError, and so
  // do the pending futures of this communicator. Rank 0 first delivers the results that it holds for its peers, but
  // gives up once they have read nothing for a second.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Returns the rank of this replica.
  int rank() const noexcept;
  // Returns the number of replicas.
  int size() const noexcept;
  std::uint16_t port() const noexcept;  // rank 0's port; master_port if there is a single replica

  // `purpose` describes a call ("accumulator loss") in up to 255 bytes. Calls for different purposes do not match.

  // Reduces `value` across all replicas and returns the result on each of them. Blocks until all replicas have made the
  // call.
  Bytes allreduce(Bytes value, const Reduce& reduce, std::string_view purpose = {});
  // Same as allreduce, but does not block: sends the value and returns immediately. (A replica that is 1024 calls or
  // max_message bytes ahead of the slowest one waits for it, up to the timeout.) Dropping the Future does not undo the
  // call.
  Future allreduce_async(Bytes value, Reduce reduce, std::string_view purpose = {});
  // Returns rank 0's value on all replicas; on the other ranks, `value` is ignored.
  Bytes broadcast(Bytes value, std::string_view purpose = {});
  // Returns the values of all replicas, by rank, on each replica. The total size of the values must not exceed
  // max_message.
  std::vector<Bytes> allgather(Bytes value, std::string_view purpose = {});
  // Blocks until all replicas have called this function, then closes the connections without errors.
  void teardown();

  // The same calls for JSON values.
  nlohmann::json allreduce(const nlohmann::json& value, const ReduceJson& reduce = sum, std::string_view purpose = {});
  nlohmann::json broadcast(const nlohmann::json& value, std::string_view purpose = {});

 private:
  struct Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Creates this process's communicator; the arguments are those of Communicator's constructor. May be called from any
// thread, but only from one thread at a time. Throws Error if the communicator already exists, and UsageError if there
// are several replicas, master_port is 0 and `on_listening` is empty, because the replicas could not find each other.
void initialize(Options options = options_from_env(), const std::function<void(std::uint16_t port)>& on_listening = {});
// Returns whether this process's communicator, world(), exists.
bool initialized() noexcept;
// Returns this process's communicator. If there is none, throws Error, which advises calling init_process_group.
Communicator& world();
// Calls Communicator::teardown; the process may then call initialize again. Throws Error if there is no communicator.
void teardown();

// Shorthands for world().
inline nlohmann::json allreduce(const nlohmann::json& value, const ReduceJson& reduce = sum,
                                std::string_view purpose = {}) {
  return world().allreduce(value, reduce, purpose);
}
// Does not block, like Communicator::allreduce_async. get() on the result waits, like Future::get.
std::future<nlohmann::json> allreduce_async(const nlohmann::json& value, const ReduceJson& reduce = sum,
                                            std::string_view purpose = {});
inline nlohmann::json broadcast(const nlohmann::json& value, std::string_view purpose = {}) {
  return world().broadcast(value, purpose);
}

}  // namespace adaptdl::collective
