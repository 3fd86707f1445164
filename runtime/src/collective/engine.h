// The implementations of a Communicator, one per role: a single replica, rank 0 (the root of the star), or a peer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "adaptdl/collective.h"
#include "base/socket.h"
#include "collective/wire.h"
#include "protocol/handshake.h"

namespace adaptdl::collective {

class Engine;

// What failed: only this call (kCall), this and all later calls (kBroken), or the agreement on which call to make
// (kMismatch). Each has its own error class.
enum class Failure { kCall, kBroken, kMismatch };

// A call in progress. The engine's lock guards all members except `engine` and the members that identify the call.
struct Future::State {
  std::shared_ptr<Engine> engine;
  wire::Kind kind = wire::Kind::kAllreduce;
  std::uint64_t sequence = 0;
  net::Clock::time_point deadline;
  bool done = false;
  std::optional<Failure> failure;
  Bytes result;  // the result, or the reason if the call failed
};

using StatePtr = std::shared_ptr<Future::State>;

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  virtual ~Engine() = default;

  // Starts the next call of this replica. Throws CollectiveError if no further call is possible.
  virtual StatePtr submit(wire::Kind kind, Bytes value, Reduce reduce, std::string_view purpose) = 0;
  virtual bool ready(Future::State& state) = 0;
  // Throws CollectiveError if the call failed or timed out.
  virtual Bytes wait(Future::State& state) = 0;
  // Leaves the job; pending calls fail. Idempotent.
  virtual void close() = 0;
  virtual std::uint16_t port() const = 0;
};

// These functions connect as the Communicator's constructor specifies. REQUIRES checked options with size > 1.
std::shared_ptr<Engine> make_root(const Options& options, const std::function<void(std::uint16_t)>& on_listening);
std::shared_ptr<Engine> make_peer(const Options& options);

// The maximum time between two checks of the deadlines in a waiting thread.
inline constexpr int kTickMs = 1000;
// How long a replica waits for the others to connect before it logs that it is waiting.
inline constexpr std::chrono::seconds kLogAfter{10};

// How long a replica waits beyond the deadline of a call for rank 0 to report which replicas are missing.
inline constexpr std::chrono::milliseconds kVerdictSlack{250};

// Throws an error of the class that `failure` selects, with the text `why`.
[[noreturn]] void raise(const std::string& why, Failure failure);

// The error text used if Options::give_up returns true.
inline constexpr const char* kGivenUp = "gave up connecting to the other replicas";

// Returns the terms of the handshake between the replicas of a job.
handshake::Terms terms(const Options& options);

// Formats a duration as "2.5 s".
std::string seconds_text(std::chrono::milliseconds duration);
// Formats ranks as "replica 3" or "replicas 1, 3".
std::string replicas_text(const std::vector<int>& ranks);
// Returns why a value of `size` bytes cannot be sent, or "" if it can.
std::string oversize_text(const Options& options, std::size_t size);

}  // namespace adaptdl::collective
