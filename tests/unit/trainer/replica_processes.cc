#include "replica_processes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>

#include "held_port.h"

namespace testing {

namespace {

pid_t start(int rank, int count, const std::string& port, const std::function<void(int)>& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  for (const int number : {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGBUS, SIGTERM, SIGINT})
    std::signal(number, SIG_DFL);  // removes doctest's handler
  setenv("ADAPTDL_REPLICA_RANK", std::to_string(rank).c_str(), 1);
  setenv("ADAPTDL_NUM_REPLICAS", std::to_string(count).c_str(), 1);
  setenv("ADAPTDL_MASTER_ADDR", "127.0.0.1", 1);
  setenv("ADAPTDL_MASTER_PORT", port.c_str(), 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  int code = 0;
  try {
    body(rank);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "replica %d: %s\n", rank, error.what());
    code = 1;
  }
  std::fflush(nullptr);
  _exit(code);
}

int wait_until(pid_t pid, std::chrono::steady_clock::time_point deadline) {
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) kill(pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::vector<int> run_replicas(int count, const std::function<void(int rank)>& body) {
  const HeldPort held;
  const auto port = std::to_string(held.number());
  std::vector<pid_t> pids;
  for (int rank = 0; rank < count; ++rank) pids.push_back(start(rank, count, port, body));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  std::vector<int> codes;
  for (const auto pid : pids) codes.push_back(wait_until(pid, deadline));
  return codes;
}

void expect_replicas(int count, const std::function<void(int rank)>& body) {
  const auto codes = run_replicas(count, body);
  const auto bad = std::find_if(codes.begin(), codes.end(), [](int code) { return code != 0; });
  if (bad != codes.end()) {
    throw std::runtime_error("replica " + std::to_string(bad - codes.begin()) + " of " + std::to_string(count) +
                             " ended with " + std::to_string(*bad));
  }
}

void expect(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(std::string("failed check: ") + what);
}

}  // namespace testing
