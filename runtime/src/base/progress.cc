#include "adaptdl/progress.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "adaptdl/sigpipe.h"

namespace adaptdl::progress {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::chrono::milliseconds kInterval{100};

// The launcher's descriptor. Writing to it never blocks.
class Channel {
 public:
  ~Channel() { close_own(); }

  void write_line(const std::string& line) {
    if (!open()) return;
    // A pipe that is nearly full may split longer lines.
    if (line.size() > PIPE_BUF) return;
    if (socket_) {
      [[maybe_unused]] const auto sent = ::send(given_, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      return;
    }
    const SigpipeGuard guard;
    pollfd writable{own_ >= 0 ? own_ : given_, POLLOUT, 0};
    if (::poll(&writable, 1, 0) != 1 || !(writable.revents & POLLOUT)) return;
    [[maybe_unused]] const auto written = ::write(writable.fd, line.data(), line.size());
  }

 private:
  // Switches to the descriptor that the environment currently names. Returns whether there is one.
  bool open() {
    int given = -1;
    try {
      given = env::status_fd().value_or(-1);
    } catch (const UsageError& error) {
      if (!warned_) log::warn(fmt::format("cannot report progress: {}", error.what()));
      warned_ = true;
    }
    if (given == given_) return given_ >= 0;
    close_own();
    given_ = given;
    struct stat info {};
    if (given_ < 0 || ::fstat(given_, &info) != 0) return given_ >= 0;
    socket_ = S_ISSOCK(info.st_mode);
    // Setting O_NONBLOCK would also affect the other processes that share the open file, so open the pipe again.
    if (S_ISFIFO(info.st_mode))
      own_ = ::open(fmt::format("/proc/self/fd/{}", given_).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return true;
  }

  void close_own() {
    if (own_ >= 0) ::close(own_);
    own_ = -1;
    socket_ = false;
  }

  int given_ = -1;
  int own_ = -1;
  bool socket_ = false;
  bool warned_ = false;
};

struct State {
  std::mutex mutex;
  std::map<std::string, double, std::less<>> values;
  Clock::time_point next_report;
  Channel channel;
};

// The state is never destroyed, because a thread may still report while the process exits.
State& state() {
  static State* const only = new State;
  return *only;
}

std::string to_line(const json& object) { return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"; }

}  // namespace

void set(std::string_view key, double value) {
  State& own = state();
  const std::lock_guard lock(own.mutex);
  const auto entry = own.values.find(key);
  if (entry == own.values.end())
    own.values.emplace(key, value);
  else
    entry->second = value;
}

std::optional<double> get(std::string_view key) {
  State& own = state();
  const std::lock_guard lock(own.mutex);
  const auto entry = own.values.find(key);
  return entry == own.values.end() ? std::nullopt : std::optional(entry->second);
}

void report() {
  State& own = state();
  const std::lock_guard lock(own.mutex);
  const auto now = Clock::now();
  if (now < own.next_report) return;
  own.next_report = now + kInterval;
  json object = json::object();
  for (const auto& [key, value] : own.values) object[key] = value;
  own.channel.write_line(to_line(object));
}

void event(std::string_view name, const json& fields) {
  json object = fields.is_object() ? fields : json::object();
  object["event"] = name;
  State& own = state();
  const std::lock_guard lock(own.mutex);
  own.channel.write_line(to_line(object));
}

}  // namespace adaptdl::progress
