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

// Returns whether the server or the node is temporarily unavailable.
bool is_temporary(const ApiError& error) { return error.code() >= 500 || error.code() == 429; }

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
  bool follow = options_.follow;  // false once the pod has ended: the next read returns the rest of its log
  for (int known_restarts = replica_.restarts; !stop.stop_requested();) {
    const auto before = position_.newest();
    const auto [outcome, error] = request(stop, follow);
    if (position_.newest() != before) {
      last_line = Clock::now();
      pause_for = kFirstReopenPause;
    }
    if (left_ || outcome == Outcome::kGone || (outcome == Outcome::kEnded && !follow)) return;
    if (options_.follow) {
      try {
        const auto now = look(stop);
        if (!now) return;
        // If the container has restarted in the meantime, the last lines before the restart are in its previous log.
        if (now->restarts > known_restarts) read(stop, false, true);
        known_restarts = now->restarts;
        // Once the pod has ended, its whole log can be read, no matter why the last read ended.
        follow = !now->ended;
        if (!follow && outcome == Outcome::kEnded) continue;
      } catch (const Error&) {
        // The server is unavailable; the log is requested again.
      }
    } else {
      if (outcome == Outcome::kWaits) return;
      if (error && Clock::now() - last_line > kPatience) std::rethrow_exception(error);
    }
    if (!pause(stop, pause_for)) return;
    pause_for = std::min(pause_for * 2, kMaxReopenPause);
  }
}

LogStream::Response LogStream::request(std::stop_token stop, bool follow) {
  try {
    const Outcome outcome = read(stop, follow, false);
    was_accepted_ = true;
    refused_since_.reset();
    return {outcome, nullptr};
  } catch (const http::ConnectionError&) {
    was_accepted_ = true;
    refused_since_.reset();
    return {Outcome::kBroken, std::current_exception()};
  } catch (const ApiError& error) {
    // A starting server may refuse the user before it has loaded its authorization rules.
    if (error.code() == 401 || error.code() == 403) {
      const auto now = Clock::now();
      if (!was_accepted_ || now - refused_since_.value_or(now) >= kStarting) throw;
      refused_since_ = refused_since_.value_or(now);
    } else if (!is_temporary(error)) {
      throw;
    }
    return {Outcome::kBroken, std::current_exception()};
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
