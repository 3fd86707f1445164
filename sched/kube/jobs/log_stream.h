// Streams one replica's log into a queue of bounded size, and reconnects when the connection breaks.
//
// Threading: each stream reads in its own thread; its queue is guarded by the LogSignal that all streams of a job
// share. Lifetime: the client and the signal must outlive the stream, whose destructor stops it within a moment.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "kube/api/client.h"
#include "kube/jobs/job.h"
#include "kube/jobs/log_position.h"

namespace adaptdl::kube {

// Guards the queues of a job's streams and notifies waiters of changes.
struct LogSignal {
  std::mutex mutex;
  std::condition_variable_any changed;
};

struct LogStreamOptions {
  std::optional<std::chrono::seconds> since;  // maximum age of lines
  std::optional<int> tail;                    // maximum number of existing lines to read first
  bool previous = false;                      // read the previous container's log
  bool follow = false;
};

class LogStream {
 public:
  using Clock = std::chrono::steady_clock;
  struct Line {
    Time time;
    Clock::time_point came;
    std::string text;
  };
  static constexpr std::size_t kFull = std::size_t{256} << 10;  // maximum number of queued bytes

  LogStream(Client& client, LogSignal& signal, Replica replica, LogStreamOptions options);

  const Replica& replica() const { return replica_; }
  Clock::time_point opened() const { return opened_; }

  // REQUIRES: the signal's mutex is held, here and for the members below.
  const Line* head() const { return lines_.empty() ? nullptr : &lines_.front(); }
  Line pop();
  bool done() const { return done_; }    // no line will follow
  bool received() const { return received_; }  // a line has arrived
  const std::exception_ptr& failed() const { return failed_; }

  // Call this when the pod no longer exists. The stream then ends once no line has arrived for a moment.
  void leave();

 private:
  enum class Outcome { kEnded, kBroken, kWaits, kGone };
  struct Response {
    Outcome outcome;
    std::exception_ptr error;  // set if the request failed, but may succeed later
  };
  void run(std::stop_token stop);
  // Sends one request for the log and reads the response. Throws errors that a later request would not avoid.
  Response request(std::stop_token stop, bool follow);
  // Reads until the log or the connection ends.
  Outcome read(std::stop_token stop, bool follow, bool previous);
  Query query(bool follow, bool previous) const;
  // Queues a line; returns false if the stream must stop.
  bool put(std::stop_token stop, Time time, std::string_view text);
  // Returns the pod's current state; null if it no longer exists.
  std::optional<Replica> look(std::stop_token stop);
  bool pause(std::stop_token stop, std::chrono::milliseconds span);

  Client& client_;
  LogSignal& signal_;
  Replica replica_;
  LogStreamOptions options_;
  Clock::time_point opened_ = Clock::now();
  LogPosition position_;
  TimedLines splitter_;
  std::deque<Line> lines_;
  std::size_t waiting_ = 0;  // bytes in lines_
  bool done_ = false, received_ = false;
  std::exception_ptr failed_;
  std::atomic<bool> left_ = false;
  Clock::time_point last_line_ = Clock::now();  // when a line was last added or popped
  // Used only by the thread.
  bool was_accepted_ = false;                       // the server may have accepted a request
  std::optional<Clock::time_point> refused_since_;  // when the server began to refuse the user
  std::jthread thread_;                             // last, because the thread uses all other members
};

}  // namespace adaptdl::kube
