// The log of one replica as it comes, over whatever breaks its connection, in a queue of bounded size.
//
// Threading: a thread of its own reads; `Lines` is shared by all streams of a job and guarded by its mutex. Lifetime:
// the client and the shared state must outlive it; it ends within a moment when it goes.
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

#include "kube/client.h"
#include "kube/job.h"
#include "kube/log_position.h"

namespace adaptdl::kube {

// What all streams wait with.
struct LogSignal {
  std::mutex mutex;
  std::condition_variable_any changed;
};

struct LogStreamOptions {
  std::optional<std::chrono::seconds> since;  // not older than that
  std::optional<int> tail;                    // no more than so many lines of before
  bool previous = false;                      // of the container before the present one
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
  static constexpr std::size_t kFull = std::size_t{256} << 10;  // bytes that may wait

  LogStream(Client& client, LogSignal& signal, Replica replica, LogStreamOptions options);

  const Replica& replica() const { return replica_; }
  Clock::time_point opened() const { return opened_; }

  // These want the signal's mutex held.
  const Line* head() const { return lines_.empty() ? nullptr : &lines_.front(); }
  Line pop();
  bool done() const { return done_; }    // nothing comes any more
  bool heard() const { return heard_; }  // something has come
  const std::exception_ptr& failed() const { return failed_; }

  // The pod is gone: what does not come within a moment, never will.
  void leave();

 private:
  enum class Outcome { kEnded, kBroken, kWaits, kGone };
  void run(std::stop_token stop);
  // Reads until the log ends or the connection does.
  Outcome read(std::stop_token stop, bool follow, bool previous);
  Query query(bool follow, bool previous) const;
  // Queues a line; false if the stream is to stop.
  bool put(std::stop_token stop, Time time, std::string_view text);
  // The pod as it is now; null if there is none.
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
  bool done_ = false, heard_ = false;
  std::exception_ptr failed_;
  std::atomic<bool> left_ = false;
  Clock::time_point last_line_ = Clock::now();  // when one came, or was taken
  std::jthread thread_;  // last: it uses all else
};

}  // namespace adaptdl::kube
