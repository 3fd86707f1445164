// A listener that records the events of a supervisor, and a client that sends arbitrary bytes.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/fd.h"
#include "http/http.h"
#include "supervisor/supervisor.h"

namespace adaptdl::testing {

constexpr std::chrono::seconds kPatience{60};

class RecordingListener : public sched::SupervisorListener {
 public:
  using Waiter = std::tuple<std::string, std::string, int, bool>;

  void hints_changed(const std::string& job_id) override {
    const std::lock_guard lock(mutex_);
    hints_.push_back(job_id);
    changed_.notify_all();
  }
  void foreign_discovers(const std::string& job_id) override {
    const std::lock_guard lock(mutex_);
    foreign_.push_back(job_id);
  }
  void replica_waits(const std::string& job_id, const std::string& replica_id, int after, bool broken) override {
    const std::lock_guard lock(mutex_);
    waiters_.emplace_back(job_id, replica_id, after, broken);
    changed_.notify_all();
  }

  void member_follows(const std::string& job_id, int after) override {
    const std::lock_guard lock(mutex_);
    followers_.emplace_back(job_id, after);
  }

  void progress_reported(const std::string& job_id, const std::string& replica_id,
                         const nlohmann::json& report) override {
    const std::lock_guard lock(mutex_);
    progress_.emplace_back(job_id, replica_id, report);
  }

  std::vector<std::tuple<std::string, std::string, nlohmann::json>> progress() {
    const std::lock_guard lock(mutex_);
    return progress_;
  }
  std::vector<std::pair<std::string, int>> followers() {
    const std::lock_guard lock(mutex_);
    return followers_;
  }
  // Waits until `count` waiting replicas have been reported, and returns them.
  std::vector<Waiter> waiters(std::size_t count) {
    std::unique_lock lock(mutex_);
    CHECK(changed_.wait_for(lock, kPatience, [&] { return waiters_.size() >= count; }));
    return waiters_;
  }
  std::vector<std::string> hints() {
    const std::lock_guard lock(mutex_);
    return hints_;
  }
  std::vector<std::string> foreign() {
    const std::lock_guard lock(mutex_);
    return foreign_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Waiter> waiters_;
  std::vector<std::pair<std::string, int>> followers_;
  std::vector<std::tuple<std::string, std::string, nlohmann::json>> progress_;
  std::vector<std::string> hints_, foreign_;
};

class RawClient {
 public:
  explicit RawClient(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    REQUIRE(fd_);
    timeval patience{};
    patience.tv_sec = kPatience.count();
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }

  // Returns whether all bytes were sent.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  bool get(const std::string& target) {
    return send(fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", target));
  }

  // Returns the status of one response and sets `body` and `head`; 0 if the server closed the connection.
  int answer() {
    std::size_t end;
    while ((end = seen_.find("\r\n\r\n")) == std::string::npos)
      if (!receive()) return 0;
    const std::string header = seen_.substr(0, end + 2);
    std::size_t length = 0;
    if (const auto at = header.find("Content-Length: "); at != std::string::npos)
      length = std::strtoul(header.c_str() + at + 16, nullptr, 10);
    while (seen_.size() < end + 4 + length)
      if (!receive()) return 0;
    body = seen_.substr(end + 4, length);
    head = header;
    seen_.erase(0, end + 4 + length);
    return std::atoi(header.c_str() + 9);
  }
  // Returns whether the server closes the connection, with or without a response.
  bool closed() {
    while (receive()) {
    }
    return errno != EAGAIN && errno != EWOULDBLOCK;
  }
  std::string body, head;

 private:
  bool receive() {
    char buffer[4096];
    errno = 0;
    const ssize_t count = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (count > 0) seen_.append(buffer, static_cast<std::size_t>(count));
    return count > 0;
  }

  adaptdl::Fd fd_;
  std::string seen_;
};

inline void allow_many_descriptors() {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 16384);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  REQUIRE(limit.rlim_cur >= 4096);
}

inline http::Response request(const sched::Supervisor& supervisor, const std::string& method, const std::string& target,
                              const std::string& body = "", const std::string& token = "") {
  http::Request request;
  request.method = method;
  request.url = supervisor.url() + target;
  request.body = body;
  if (!token.empty()) request.headers.push_back("Authorization: Bearer " + token);
  return http::send(request);
}

}  // namespace adaptdl::testing
