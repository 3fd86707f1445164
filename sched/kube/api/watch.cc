#include "kube/api/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/foreign_json.h"
#include "http/http.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kMinDuration = 240, kMaxDuration = 480;  // seconds; random, so that not all watches end at once
constexpr milliseconds kFirstWatchPause{100}, kMaxWatchPause{4000};
constexpr std::size_t kMaxLineLength = std::size_t{64} << 20;

std::string meta(const json& object, const char* key) {
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return "";
  const auto value = metadata->find(key);
  return value != metadata->end() && value->is_string() ? value->get<std::string>() : "";
}

class Watcher {
 public:
  Watcher(Client& client, const std::string& collection, const ListOptions& options, std::stop_token stop,
          const std::function<bool(Change&&)>& handle)
      : client_(client), collection_(collection), options_(options), stop_(std::move(stop)), handle_(handle) {}

  void run() {
    list();
    options_.from_memory = false;  // so that no object is older than one that was already reported
    while (!done()) {
      try {
        if (interrupted_) probe();
        if (expired_) list();
        follow();
      } catch (const http::ConnectionError& error) {
        refused_since_.reset();  // the server is restarting
        pause(error.what());
      } catch (const ApiError& error) {
        if (error.gone())
          expired_ = true;
        else
          check(error);
        pause(error.what());
      }
    }
  }

 private:
  struct Known {
    std::string version, name, name_space;
  };

  bool done() const { return ended_ || stop_.stop_requested(); }
  void notify(Change::Kind kind, json object = nullptr, std::string message = "") {
    if (!done() && !handle_({kind, std::move(object), std::move(message)})) ended_ = true;
  }

  // Reports the objects, or only the differences if objects have been reported before. Deletions come first, because a
  // new object may have the same name.
  void list() {
    std::vector<json> objects;
    std::unordered_map<std::string, Known> gone = known_;
    const bool first = version_.empty();
    version_ = client_.list(
        collection_, options_,
        [&](json&& object) {
          if (done()) throw http::Stopped();
          gone.erase(meta(object, "uid"));
          if (first)
            notify_state(std::move(object));
          else
            objects.push_back(std::move(object));
        },
        stop_);
    for (const auto& [uid, last] : gone) {
      notify(Change::Kind::kDeleted,
             {{"metadata", {{"name", last.name}, {"namespace", last.name_space}, {"uid", uid}}}});
      known_.erase(uid);
    }
    for (json& object : objects) notify_state(std::move(object));
    notify(Change::Kind::kSynced);
    expired_ = false;
    well();
  }

  void notify_state(json&& object) {
    const std::string uid = meta(object, "uid"), version = meta(object, "resourceVersion");
    const auto known = known_.find(uid);
    const bool added = known == known_.end();
    if (!added && (known->second.version == version || is_older_version(version, known->second.version))) return;
    known_[uid] = {version, meta(object, "name"), meta(object, "namespace")};
    notify(added ? Change::Kind::kAdded : Change::Kind::kModified, std::move(object));
  }

  void follow() {
    Query query{{"watch", "true"},
                {"allowWatchBookmarks", "true"},
                {"resourceVersion", version_},
                {"timeoutSeconds", std::to_string(std::uniform_int_distribution(kMinDuration, kMaxDuration)(random_))}};
    if (!options_.label_selector.empty()) query.emplace_back("labelSelector", options_.label_selector);
    if (!options_.field_selector.empty()) query.emplace_back("fieldSelector", options_.field_selector);
    const auto begin = Clock::now();
    std::string partial;
    client_.stream(collection_, query, stop_, [&](std::string_view bytes) {
      for (std::size_t end; !done() && !expired_ && (end = bytes.find('\n')) != std::string_view::npos;) {
        take(partial.empty() ? bytes.substr(0, end) : partial.append(bytes.substr(0, end)));
        partial.clear();
        bytes.remove_prefix(end + 1);
      }
      partial += bytes;
      if (partial.size() > kMaxLineLength) throw Error(fmt::format("{}: an object is larger than 64 MiB", collection_));
      return !done() && !expired_;
    });
    // Pause between watches if the server ends each of them immediately, even without an error.
    if (!done() && Clock::now() - begin < std::chrono::seconds(1)) pause("the server ends each watch immediately");
  }

  void take(std::string_view line) {
    if (line.find_first_not_of(" \r") == std::string_view::npos) return;
    json event = parse_shallow_json(line);
    if (!event.is_object() || !event.contains("object") || !event["object"].is_object())
      throw http::ConnectionError(fmt::format("GET {}: the server sent an invalid watch event", collection_));
    const std::string type = event.value("type", json()).is_string() ? event["type"].get<std::string>() : "";
    json object = std::move(event["object"]);
    if (type == "ERROR") return take_error(object);
    well();
    const std::string version = meta(object, "resourceVersion");
    if (type == "ADDED" || type == "MODIFIED") {
      notify_state(std::move(object));
    } else if (type == "DELETED" && known_.erase(meta(object, "uid")) > 0) {
      notify(Change::Kind::kDeleted, std::move(object));
    }
    if (!version.empty()) version_ = version;
  }

  void take_error(const json& object) {
    const auto code = object.find("code");
    const int status = code != object.end() && code->is_number_integer() ? code->get<int>() : 500;
    if (status == 410) {
      expired_ = true;
      return;
    }
    throw http::ConnectionError(
        fmt::format("GET {}: {}", collection_,
                    parse_status(status, object.dump(-1, ' ', false, json::error_handler_t::replace)).message));
  }

  // Reports the end of an interruption once the server answers.
  void probe() {
    client_.get(collection_, {{"limit", "1"}}, stop_);
    interrupted_ = false;
    if (!expired_) notify(Change::Kind::kSynced);
  }

  // Rethrows the current exception, `error`, if waiting cannot resolve it.
  void check(const ApiError& error) {
    const bool may_pass = error.code() >= 500 || error.code() == 429 || error.code() == 408;
    if (may_pass) return;
    if (!refused_since_) refused_since_ = Clock::now();
    if (Clock::now() - *refused_since_ > kStarting) throw;
  }

  void well() {
    failures_ = 0;
    refused_since_.reset();
  }

  // Does not report the first failure: most connections that break can be reopened immediately.
  void pause(const std::string& why) {
    ++failures_;
    if (failures_ > 1 && !interrupted_) {
      interrupted_ = true;
      notify(Change::Kind::kInterrupted, nullptr, why);
    }
    const milliseconds max_pause = std::min(kFirstWatchPause * (1 << std::min(failures_ - 1, 10)), kMaxWatchPause);
    const milliseconds pause(std::uniform_int_distribution<long>(max_pause.count() / 2, max_pause.count())(random_));
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait_for(lock, stop_, pause, [] { return false; });
  }

  Client& client_;
  const std::string collection_;
  ListOptions options_;
  const std::stop_token stop_;
  const std::function<bool(Change&&)>& handle_;
  std::unordered_map<std::string, Known> known_;  // reported objects, by uid
  std::string version_;                           // everything up to this resourceVersion was reported
  bool expired_ = false;                          // the server no longer has version_
  bool ended_ = false, interrupted_ = false;
  int failures_ = 0;  // since the last success
  std::optional<Clock::time_point> refused_since_;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace

void watch(Client& client, const std::string& collection, const ListOptions& options, std::stop_token stop,
           const std::function<bool(Change&&)>& handle) {
  try {
    Watcher(client, collection, options, stop, handle).run();
  } catch (const http::Stopped&) {
    // The caller requested the stop.
  }
}

}  // namespace adaptdl::kube
