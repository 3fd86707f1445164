#include "kube/jobs/log_stream.h"

#include <algorithm>

#include "http/http.h"
#include "kube/api/error.h"
#include "kube/api/resource.h"
#include "kube/api/watch.h"

namespace adaptdl::kube {
namespace {

constexpr auto kFirstReopenPause = std::chrono::milliseconds(100);
constexpr auto kMaxReopenPause = std::chrono::milliseconds(2000);
// How long the reading of a log that is not followed is retried while no new line arrives.
constexpr auto kPatience = std::chrono::seconds(8);
// How long a deleted pod's log may be silent before reading stops.
constexpr auto kPodFarewell = std::chrono::seconds(2);
constexpr auto kLookAtFarewellEvery = std::chrono::milliseconds(100);

// Returns whether waiting may help, because the server or the node is temporarily unavailable.
bool may_pass(const ApiError& error) { return error.code() >= 500 || error.code() == 429; }
// Returns whether the server refused the user. A starting server may do so before it has loaded its authorization
// rules.
bool is_refusal(const ApiError& error) { return error.code() == 401 || error.code() == 403; }

}  // namespace

LogStream::LogStream(Client& client, LogSignal& signal, Replica replica, LogStreamOptions options)
    : client_(client), signal_(signal), replica_(std::move(replica)), options_(options) {
  thread_ = std::jthread([this](std::stop_token stop) {
    try {
      run(stop);
    } catch (...) {
      const std::lock_guard lock(signal_.mutex);
      failed_ = std::current_exception();
    }
    const std::lock_guard lock(signal_.mutex);
    done_ = true;
    signal_.changed.notify_all();
  });
}

LogStream::Line LogStream::pop() {
  Line line = std::move(lines_.front());
  lines_.pop_front();
  waiting_ -= line.text.size();
  last_line_ = Clock::now();
  if (waiting_ + line.text.size() >= kFull && waiting_ < kFull) signal_.changed.notify_all();
  return line;
}

void LogStream::leave() {
  left_ = true;
  signal_.changed.notify_all();
}

void LogStream::run(std::stop_token stop) {
  if (options_.previous) {
    read(stop, false, true);
    return;
  }
  auto pause_for = kFirstReopenPause;
  auto last_line = Clock::now();
  bool last_read = !options_.follow;  // the next read does not follow: the pod has ended, or `follow` is off
  bool opened = false;                // the server may have accepted a request
  auto refused_since = Clock::time_point::max();  // when the server began to refuse the user
  for (int known_restarts = replica_.restarts; !stop.stop_requested();) {
    const auto before = position_.newest();
    Outcome outcome = Outcome::kBroken;
    std::exception_ptr why;
    try {
      outcome = read(stop, !last_read, false);
      opened = true;
      refused_since = Clock::time_point::max();
    } catch (const http::ConnectionError&) {
      opened = true;
      refused_since = Clock::time_point::max();
      why = std::current_exception();
    } catch (const ApiError& error) {
      const auto now = Clock::now();
      if (opened && is_refusal(error)) refused_since = std::min(refused_since, now);
      const bool starts = is_refusal(error) && refused_since <= now && now - refused_since < kStarting;
      if (!may_pass(error) && !starts) throw;
      why = std::current_exception();
    }
    if (position_.newest() != before) {
      last_line = Clock::now();
      pause_for = kFirstReopenPause;
    }
    if (outcome == Outcome::kGone || (outcome == Outcome::kEnded && last_read)) return;
    if (left_) return;
    if (why && !options_.follow && Clock::now() - last_line > kPatience) std::rethrow_exception(why);
    if (outcome == Outcome::kWaits && !options_.follow) return;
    if (options_.follow) {
      try {
        const auto now = look(stop);
        if (!now) return;
        // If the container has restarted in the meantime, the last lines before the restart are in its previous log.
        if (now->restarts > known_restarts) read(stop, false, true);
        known_restarts = now->restarts;
        // Once the pod has ended, its whole log can be read, no matter why the last read ended.
        last_read = now->ended;
        if (last_read && outcome == Outcome::kEnded) continue;
      } catch (const Error&) {
        // The server is unavailable; the log is requested again.
      }
    }
    if (!pause(stop, pause_for)) return;
    pause_for = std::min(pause_for * 2, kMaxReopenPause);
  }
}

Query LogStream::query(bool follow, bool previous) const {
  Query query = {{"timestamps", "true"}};
  if (!replica_.container.empty()) query.emplace_back("container", replica_.container);
  if (follow) query.emplace_back("follow", "true");
  if (previous) query.emplace_back("previous", "true");
  if (const std::string since = position_.since(); !since.empty()) {
    query.emplace_back("sinceTime", since);
  } else {
    if (options_.since) {
      const auto open = std::chrono::ceil<std::chrono::seconds>(Clock::now() - opened_);
      query.emplace_back("sinceSeconds", std::to_string((*options_.since + open).count()));
    }
    if (options_.tail) query.emplace_back("tailLines", std::to_string(*options_.tail));
  }
  return query;
}

LogStream::Outcome LogStream::read(std::stop_token stop, bool follow, bool previous) {
  splitter_.reset();
  position_.reopen();
  const auto sink = [&](Time time, std::string_view text) { return put(stop, time, text); };
  // Stops reading a deleted pod's log even if nothing more arrives.
  std::stop_source over;
  const std::stop_callback stopped(stop, [&over] { over.request_stop(); });
  std::jthread farewell;
  if (follow) {
    farewell = std::jthread([this, &over](std::stop_token ended) {
      std::unique_lock lock(signal_.mutex);
      signal_.changed.wait(lock, ended, [this] { return left_.load(); });
      const auto from = Clock::now();
      while (!ended.stop_requested()) {
        const auto until = std::max(from, last_line_) + kPodFarewell;
        // Lines that have not been popped yet may block further lines.
        if (lines_.empty() && Clock::now() >= until) return static_cast<void>(over.request_stop());
        signal_.changed.wait_for(lock, ended, kLookAtFarewellEvery, [] { return false; });
      }
    });
  }
  try {
    client_.stream(path(kPods, replica_.name_space, replica_.name, "log"), query(follow, previous), over.get_token(),
                   [&](std::string_view bytes) { return splitter_.add(bytes, sink); });
  } catch (const ApiError& error) {
    if (error.not_found()) return Outcome::kGone;
    if (error.code() == 400 && !previous) return Outcome::kWaits;  // no container has started yet
    throw;
  }
  if (stop.stop_requested()) return Outcome::kBroken;
  // While following, an incomplete line is not lost: it is sent again in the next read.
  if (!follow) splitter_.finish(sink);
  return Outcome::kEnded;
}

bool LogStream::put(std::stop_token stop, Time time, std::string_view text) {
  if (!position_.take(time)) return !stop.stop_requested();
  std::unique_lock lock(signal_.mutex);
  if (waiting_ >= kFull) signal_.changed.wait(lock, stop, [this] { return waiting_ < kFull; });
  if (stop.stop_requested()) return false;
  last_line_ = Clock::now();
  lines_.push_back({time, last_line_, std::string(text)});
  waiting_ += text.size();
  received_ = true;
  // Readers wait only for the first line of a queue.
  if (lines_.size() == 1) signal_.changed.notify_all();
  return true;
}

std::optional<Replica> LogStream::look(std::stop_token stop) {
  try {
    Replica now = parse_replica(client_.get(path(kPods, replica_.name_space, replica_.name), {}, stop));
    if (now.uid != replica_.uid) return std::nullopt;
    return now;
  } catch (const ApiError& error) {
    if (error.not_found()) return std::nullopt;
    throw;
  }
}

bool LogStream::pause(std::stop_token stop, std::chrono::milliseconds span) {
  std::unique_lock lock(signal_.mutex);
  signal_.changed.wait_for(lock, stop, span, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace adaptdl::kube
