// Rank 0: accepts the other replicas, receives their values of each call, and sends the results to them.
//
// A dedicated thread performs the input and output, so that peers make progress while rank 0 is busy. The thread that
// adds the last value of a call reduces the values and sends the result immediately: the I/O thread for a peer's value,
// and the calling thread for rank 0's own. A mutex guards everything; it is held while reducing.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collective/engine.h"
#include "collective/link.h"
#include "collective/pending_calls.h"
#include "protocol/gate.h"

namespace adaptdl::collective {

class Root final : public Engine {
 public:
  // Starts listening. The peers are accepted after start() is called.
  explicit Root(const Options& options);
  ~Root() override { close(); }

  // Waits for all peers. Throws CollectiveError if they do not connect.
  void start();

  StatePtr submit(wire::Kind kind, Bytes value, Reduce reduce, std::string_view purpose) override;
  bool ready(Future::State& state) override;
  Bytes wait(Future::State& state) override;
  void close() override;
  std::uint16_t port() const override { return port_; }

 private:
  using TimePoint = net::Clock::time_point;

  // Additional data for rank 0's own parts.
  struct Own {
    Reduce reduce;
    std::weak_ptr<Future::State> state;
  };

  // A replica's connection. Rank 0 has no link.
  struct Replica {
    std::optional<Link> link;
    std::uint32_t events = 0;  // events that epoll reports
    std::string from;          // its address once it has connected
  };

  enum class Phase { kConnecting, kRunning, kBroken, kTornDown };

  // Called on the I/O thread with the mutex held; `run` releases it while it waits.
  void run();
  int next_timeout(TimePoint now) const;
  void on_event(std::uint64_t data, std::uint32_t events);
  void on_tick(TimePoint now);
  Gate::Verdict judge(std::string_view request, const std::string& from);
  std::string objection(const wire::Hello& hello) const;
  void admit(int rank, Fd fd, std::string from);
  void on_frame(int rank, wire::Frame frame);

  // Called on any thread with the mutex held.
  void add_part(int rank, wire::Kind kind, bool failed, Bytes value, std::string purpose);
  void complete_calls();
  void complete_call();
  void finish_own(const wire::Frame& result);
  void send_all(const wire::Frame& frame);
  void flush(int rank);
  void watch(int rank);
  void lost(int rank, const std::string& why);
  void fail(std::string text, Failure failure = Failure::kBroken);
  std::vector<int> missing_ranks() const;
  std::optional<TimePoint> call_deadline() const;
  std::string when() const;

  const Options options_;
  std::uint16_t port_ = 0;
  Fd epoll_;
  Fd wake_;
  std::optional<Gate> gate_;
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool notify_ = false;
  bool closing_ = false;
  Phase phase_ = Phase::kConnecting;
  std::string broken_;  // why calls fail in kBroken and kTornDown
  Failure failure_ = Failure::kBroken;
  TimePoint connect_deadline_;
  std::vector<Replica> replicas_;
  std::size_t unconnected_ = 0;  // number of replicas without a link
  PendingCalls calls_;
  std::deque<Own> own_;
};

}  // namespace adaptdl::collective
