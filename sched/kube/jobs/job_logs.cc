#include "kube/jobs/job_logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "http/http.h"
#include "kube/api/resource.h"
#include "kube/api/watch.h"
#include "kube/jobs/log_stream.h"

namespace adaptdl::kube {
namespace {

using Clock = LogStream::Clock;

// How long a line waits for older lines from a silent replica (kSettles) and from a replica without any output yet
// (kOpens).
constexpr auto kSettles = std::chrono::milliseconds(200);
constexpr auto kOpens = std::chrono::seconds(1);
constexpr auto kLooksEvery = std::chrono::milliseconds(100);
// How long an ended job's logs may be silent before reading stops.
constexpr auto kJobFarewell = std::chrono::seconds(5);
constexpr std::size_t kBatch = 1000;  // lines

class JobLogs {
 public:
  JobLogs(Client& client, const JobLogsQuery& query, const JobLogsSinks& sinks)
      : client_(client), query_(query), sinks_(sinks) {}

  void read(std::stop_token stop) {
    start_present();
    const bool goes_on = query_.follow && !job_ended();
    if (streams_.empty() && !goes_on) throw NoLogs(nothing());
    if (goes_on)
      follow();
    else if (query_.follow)
      over_since_ = Clock::now();
    while (!stop.stop_requested() && show_some(stop)) {
    }
    for (auto& thread : watches_) thread.request_stop();
    rethrow();
  }

 private:
  struct Batch {
    std::vector<std::pair<LogStream*, LogStream::Line>> lines;
    bool over = false;
  };

  std::string selector() const { return replica_selector(query_.job); }

  bool wanted(const Replica& replica) const {
    return replica.started && (!query_.rank || *query_.rank == replica.rank) &&
           (!query_.previous || replica.restarts > 0);
  }

  void start(const Replica& replica, bool present) {
    const std::lock_guard lock(signal_.mutex);
    if (!wanted(replica) || !known_.insert(replica.uid).second) return;
    LogStreamOptions options{.since = {}, .tail = {}, .previous = query_.previous, .follow = query_.follow};
    // The log of a replica that appears later is shown from the beginning.
    if (present) {
      options.since = query_.since;
      options.tail = query_.tail;
    }
    streams_.push_back(std::make_unique<LogStream>(client_, signal_, replica, options));
    signal_.changed.notify_all();
  }

  void start_present() {
    client_.list(path(kPods, query_.name_space), {.label_selector = selector(), .field_selector = {}},
                 [this](nlohmann::json&& pod) { start(parse_replica(pod), true); });
  }

  bool is_over(const Job& job) const {
    return job.ended() || (query_.until_suspended && job.suspend && job.phase == "Suspended");
  }

  bool job_ended() {
    try {
      over_ = is_over(parse_job(client_.get(path(kAdaptDLJobs, query_.name_space, query_.job))));
    } catch (const ApiError& error) {
      if (!error.missing_object()) throw;
      over_ = true;
    }
    return over_;
  }

  // Watches the job and its pods.
  void follow() {
    watches_.emplace_back([this](std::stop_token stop) {
      guarded([&] {
        keep_watching(kPods, {.label_selector = selector(), .field_selector = {}}, stop,
                      [this](Change&& change) { return take_pod(change); });
      });
    });
    watches_.emplace_back([this](std::stop_token stop) {
      guarded([&] {
        keep_watching(kAdaptDLJobs, {.label_selector = {}, .field_selector = "metadata.name=" + query_.job}, stop,
                      [this, &stop](Change&& change) { return take_job(change, stop); });
      });
    });
  }

  // A watch fails if the server cannot be reached when the watch begins. If the other watch has already begun, the
  // server is probably restarting, so the failed watch is retried.
  void keep_watching(const Resource& resource, const ListOptions& options, const std::stop_token& stop,
                     const std::function<bool(Change&&)>& take) {
    while (!stop.stop_requested()) {
      try {
        return watch(client_, path(resource, query_.name_space), options, stop, [&](Change&& change) {
          watching_ = true;
          return take(std::move(change));
        });
      } catch (const http::ConnectionError&) {
        if (!watching_) throw;
        std::this_thread::sleep_for(kLooksEvery);
      }
    }
  }

  template <typename Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(signal_.mutex);
      if (!failed_) failed_ = std::current_exception();
      signal_.changed.notify_all();
    }
  }

  bool take_pod(const Change& change) {
    if (change.kind == Change::Kind::kInterrupted) return note_outage(change.message);
    note_outage("");
    if (change.kind == Change::Kind::kSynced) return true;
    const Replica replica = parse_replica(change.object);
    if (change.kind != Change::Kind::kDeleted) {
      start(replica, false);
      return true;
    }
    const std::lock_guard lock(signal_.mutex);
    for (const auto& stream : streams_) {
      if (stream->replica().uid == replica.uid) stream->leave();
    }
    return true;
  }

  bool take_job(const Change& change, const std::stop_token& stop) {
    if (change.kind == Change::Kind::kInterrupted) return true;
    // If no event precedes kSynced, the job was deleted before the watch began.
    const bool is_there = std::exchange(job_seen_, true) || change.kind != Change::Kind::kSynced;
    if (is_there && change.kind == Change::Kind::kSynced) return true;
    if (is_there && change.kind != Change::Kind::kDeleted && !is_over(parse_job(change.object))) return true;
    end(stop);
    return false;
  }

  // Called when the job has ended, has been deleted or, if the query ends at suspension, is suspended. Starts to read
  // the logs of the job's remaining pods.
  void end(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      try {
        client_.list(path(kPods, query_.name_space), {.label_selector = selector(), .field_selector = {}},
                     [this](nlohmann::json&& pod) { start(parse_replica(pod), false); });
        break;
      } catch (const http::ConnectionError&) {
        std::this_thread::sleep_for(kLooksEvery);
      } catch (const ApiError&) {
        // Retry after this error, too: the watch does not report the job's end again.
        std::this_thread::sleep_for(kLooksEvery);
      }
    }
    const std::lock_guard lock(signal_.mutex);
    over_ = true;
    over_since_ = Clock::now();
    signal_.changed.notify_all();
  }

  bool note_outage(const std::string& why) {
    const std::lock_guard lock(signal_.mutex);
    if (why.empty() != outage_.empty()) {
      outage_ = why;
      notices_.push_back(why.empty() ? "the cluster responds again"
                                     : "the log may be delayed: " + why);
      signal_.changed.notify_all();
    }
    return true;
  }

  // Returns the stream with the oldest line, or null if an older line may still arrive. REQUIRES: the mutex is held.
  LogStream* next(Clock::time_point now) const {
    LogStream* oldest = nullptr;
    const auto order = [](const LogStream& stream) {
      return std::tuple(stream.head()->time, stream.replica().group, stream.replica().rank);
    };
    for (const auto& stream : streams_) {
      if (stream->head() != nullptr && (oldest == nullptr || order(*stream) < order(*oldest))) oldest = stream.get();
    }
    if (oldest == nullptr) return nullptr;
    for (const auto& stream : streams_) {
      if (stream->done() || stream->head() != nullptr) continue;
      if (!query_.follow) return nullptr;
      if (!stream->received() && now - stream->opened() < kOpens) return nullptr;
      if (now - oldest->head()->came < kSettles) return nullptr;
    }
    return oldest;
  }

  bool all_done() const {
    return std::ranges::all_of(streams_,
                               [](const auto& stream) { return stream->done() && stream->head() == nullptr; });
  }

  // Waits for lines and returns those that can be shown now. Returns early on a stop.
  Batch take(std::stop_token stop) {
    Batch batch;
    std::unique_lock lock(signal_.mutex);
    while (!stop.stop_requested()) {
      const auto now = Clock::now();
      while (batch.lines.size() < kBatch) {
        LogStream* stream = next(now);
        if (stream == nullptr) break;
        batch.lines.emplace_back(stream, stream->pop());
      }
      if (!batch.lines.empty() && over_since_) over_since_ = now;
      if (!batch.lines.empty() || !notices_.empty() || failed_) return batch;
      if (all_done() && (!query_.follow || over_)) {
        batch.over = true;
        return batch;
      }
      if (over_ && over_since_ && now - *over_since_ > kJobFarewell) {
        for (const auto& stream : streams_) stream->leave();
        over_since_.reset();
      }
      signal_.changed.wait_for(lock, stop, kLooksEvery, [this] { return next(Clock::now()) != nullptr; });
    }
    return batch;
  }

  // Returns false after the last lines.
  bool show_some(std::stop_token stop) {
    const Batch batch = take(stop);
    for (const auto& [stream, line] : batch.lines) {
      if (!sinks_.line(stream->replica(), line.time, line.text)) return false;
    }
    if (!sinks_.flush()) return false;
    std::vector<std::string> notices;
    bool failed = false;
    {
      const std::lock_guard lock(signal_.mutex);
      notices.swap(notices_);
      failed = failed_ != nullptr;
    }
    for (const std::string& notice : notices) sinks_.notice(notice);
    return !batch.over && !failed;
  }

  std::string nothing() const {
    if (query_.previous) return fmt::format("job '{}' has no previous logs: no container was restarted", query_.job);
    if (query_.rank) return fmt::format("job '{}' has no log of rank {}", query_.job, *query_.rank);
    return fmt::format("job '{}' has no logs: no replica has run, or the pods no longer exist", query_.job);
  }

  void rethrow() {
    const std::lock_guard lock(signal_.mutex);
    if (failed_) std::rethrow_exception(failed_);
    for (const auto& stream : streams_) {
      if (stream->failed()) std::rethrow_exception(stream->failed());
    }
  }

  Client& client_;
  const JobLogsQuery& query_;
  const JobLogsSinks& sinks_;
  LogSignal signal_;
  std::set<std::string> known_;  // uids of pods that have a stream
  std::vector<std::string> notices_;
  std::string outage_;
  std::atomic<bool> watching_ = false;           // whether a watch has begun
  bool over_ = false;                            // the job has ended
  std::optional<Clock::time_point> over_since_;  // when the job ended or, later, when the last line arrived
  bool job_seen_ = false;                        // the watch has reported the job or kSynced
  std::exception_ptr failed_;
  std::vector<std::unique_ptr<LogStream>> streams_;
  std::vector<std::jthread> watches_;  // last, because the threads use all other members
};

}  // namespace

void read_job_logs(Client& client, const JobLogsQuery& query, std::stop_token stop, const JobLogsSinks& sinks) {
  JobLogs(client, query, sinks).read(std::move(stop));
}

}  // namespace adaptdl::kube
