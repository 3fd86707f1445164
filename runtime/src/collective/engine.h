// What a Communicator does, by role: alone, as rank 0 (the root of the star), or as one of its peers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "adaptdl/collective.h"
#include "collective/wire.h"
#include "handshake.h"
#include "socket.h"

namespace adaptdl::collective {

class Engine;

// What failed: this call alone, this and all later ones, or the agreement on what is called. Each has an error of its
// own.
enum class Failure { kCall, kBroken, kMismatch };

// One call under way. All but `engine` and what identifies the call is guarded by the engine.
struct Future::State {
  std::shared_ptr<Engine> engine;
  wire::Kind kind = wire::Kind::kAllreduce;
  std::uint64_t sequence = 0;
  net::Clock::time_point deadline;
  bool done = false;
  std::optional<Failure> failure;
  Bytes result;  // or, when failed, why
};

using StatePtr = std::shared_ptr<Future::State>;

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  virtual ~Engine() = default;

  // Makes the next call of this replica. Throws CollectiveError when no call is possible any more.
  virtual StatePtr submit(wire::Kind kind, Bytes value, Reduce reduce, std::string_view purpose) = 0;
  virtual bool ready(Future::State& state) = 0;
  // Throws CollectiveError when the call failed or timed out.
  virtual Bytes wait(Future::State& state) = 0;
  // Leaves the job: whatever is pending fails. Idempotent.
  virtual void close() = 0;
  virtual std::uint16_t port() const = 0;
};

// Connect as the Communicator's constructor says. REQUIRES checked options with size > 1.
std::shared_ptr<Engine> make_root(const Options& options, const std::function<void(std::uint16_t)>& on_listening);
std::shared_ptr<Engine> make_peer(const Options& options);

// How often a thread that waits checks the deadlines, at least.
inline constexpr int kTickMs = 1000;
// How long a replica waits for the others to connect before it says so.
inline constexpr std::chrono::seconds kTellAfter{10};

// How long a replica waits beyond the deadline of a call for rank 0 to say who is missing.
inline constexpr std::chrono::milliseconds kVerdictSlack{250};

// Throws the error of a call.
[[noreturn]] void raise(const std::string& why, Failure failure);

// Why it ended, if Options::give_up said so.
inline constexpr const char* kGivenUp = "connecting to the other replicas was given up";

// What the replicas of a job agree on before they talk.
handshake::Terms terms(const Options& options);

// "2.5 s"
std::string seconds_text(std::chrono::milliseconds duration);
// "replica 3", "replicas 1, 3"
std::string replicas_text(const std::vector<int>& ranks);
// Why a value of `size` bytes cannot be sent, or "" if it can.
std::string oversize_text(const Options& options, std::size_t size);

}  // namespace adaptdl::collective
