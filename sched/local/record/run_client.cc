#include "local/record/run_client.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <thread>

#include "adaptdl/error.h"
#include "base/foreign_json.h"
#include "local/base/runtime_directory.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;

constexpr auto kStatusTime = std::chrono::seconds(1);
// No event reports that a lock is free again, so the lock is polled.
constexpr auto kLookAtLockEvery = std::chrono::milliseconds(50);

void limit_waiting(const Fd& connection, std::chrono::milliseconds limit) {
  const timeval time{.tv_sec = static_cast<time_t>(limit.count() / 1000),
                     .tv_usec = static_cast<suseconds_t>(limit.count() % 1000 * 1000)};
  ::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

// In a shared directory, the socket could belong to another user instead of the launcher.
Fd connect(const RunEntry& run) {
  Fd connection = connect_to(run.socket);
  if (connection && !is_own_user(connection.get())) connection.reset();
  return connection;
}

// Reads until the other end closes the connection.
std::string read_all(const Fd& connection) {
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t size = ::recv(connection.get(), buffer.data(), buffer.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

Fd send_request(const RunEntry& run, const json& request, std::optional<std::chrono::milliseconds> limit) {
  const std::string& name = run.status.name;
  if (!is_alive(run)) throw Error(fmt::format("run '{}' is not running (state: {})", name, run.status.state));
  Fd connection = connect(run);
  if (connection && limit) limit_waiting(connection, *limit);
  const std::string line = request.dump() + '\n';
  if (!connection ||
      ::send(connection.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    throw Error(fmt::format("cannot reach run '{}' at socket '{}'; its launcher is process {} on host '{}'", name,
                            run.socket, run.status.pid, run.status.host));
  }
  return connection;
}

json check_answer(const std::string& name, const std::string& text) {
  json answer = parse_foreign_json(text);
  if (!answer.is_object() || !answer.contains("ok")) throw Error(fmt::format("run '{}' did not answer", name));
  if (answer["ok"] != true)
    throw Error(fmt::format("run '{}': {}", name, answer.value("why", "it refused the request")));
  answer.erase("ok");
  return answer;
}

}  // namespace

json ask_run(const RunEntry& run, const json& request, std::optional<std::chrono::milliseconds> limit) {
  const Fd connection = send_request(run, request, limit);
  return check_answer(run.status.name, read_all(connection));
}

PendingRequest::PendingRequest(const RunEntry& run, const json& request)
    : name_(run.status.name), connection_(send_request(run, request, {})) {}

std::optional<json> PendingRequest::answer() {
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t size = ::recv(connection_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (size <= 0) return check_answer(name_, text_);
    text_.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

RunStatus status_now(const RunEntry& run) {
  if (!run.alive) return run.status;
  try {
    return run_status(ask_run(run, {{"request", "status"}}, kStatusTime).at("status"));
  } catch (const std::exception&) {
    return run.status;
  }
}

void wait_for_end(const RunEntry& run) {
  while (is_alive(run)) std::this_thread::sleep_for(kLookAtLockEvery);
}

}  // namespace adaptdl::sched
