// Measures the latency of an 8-byte allreduce over 8 replicas, each in its own process on this machine.
//
// Prints the median and the 99th percentile at rank 0, and fails if the median exceeds the bound.
// Usage: allreduce [REPLICAS [CALLS [BOUND_MS]]]
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "adaptdl/collective.h"

namespace {

using adaptdl::collective::Bytes;
using adaptdl::collective::Communicator;
using adaptdl::collective::Options;

constexpr int kWarmup = 200;

Bytes add(Bytes accumulated, const Bytes& next) {
  std::uint64_t a = 0, b = 0;
  std::memcpy(&a, accumulated.data(), sizeof a);
  std::memcpy(&b, next.data(), sizeof b);
  a += b;
  std::memcpy(accumulated.data(), &a, sizeof a);
  return accumulated;
}

// Returns the latencies in milliseconds, or an empty vector if a result was wrong.
std::vector<double> measure(Communicator& communicator, int calls) {
  std::vector<double> latencies;
  const std::uint64_t rank = static_cast<std::uint64_t>(communicator.rank());
  const std::uint64_t size = static_cast<std::uint64_t>(communicator.size());
  for (int i = 0; i < kWarmup + calls; ++i) {
    Bytes value(sizeof rank, '\0');
    std::memcpy(value.data(), &rank, sizeof rank);
    const auto start = std::chrono::steady_clock::now();
    const Bytes result = communicator.allreduce(std::move(value), add);
    const std::chrono::duration<double, std::milli> latency = std::chrono::steady_clock::now() - start;
    std::uint64_t sum = 0;
    std::memcpy(&sum, result.data(), sizeof sum);
    if (sum != size * (size - 1) / 2) return {};
    if (i >= kWarmup) latencies.push_back(latency.count());
  }
  communicator.teardown();
  return latencies;
}

int run_peer(Options options, int ports, int rank, int calls) {
  options.rank = rank;
  if (::read(ports, &options.master_port, sizeof options.master_port) != sizeof options.master_port) return 1;
  Communicator communicator(options);
  return measure(communicator, calls).empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.size = argc > 1 ? std::atoi(argv[1]) : 8;
  const int calls = argc > 2 ? std::atoi(argv[2]) : 5000;
  const double bound = argc > 3 ? std::atof(argv[3]) : 0.3;

  int ports[2];
  if (::pipe(ports) != 0) return 1;
  std::vector<pid_t> peers;
  for (int rank = 1; rank < options.size; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(run_peer(options, ports[0], rank, calls));
    peers.push_back(pid);
  }
  std::vector<double> latencies;
  {
    Communicator communicator(options, [&](std::uint16_t port) {
      for (int rank = 1; rank < options.size; ++rank)
        if (::write(ports[1], &port, sizeof port) != sizeof port) std::abort();
    });
    latencies = measure(communicator, calls);
  }
  bool good = !latencies.empty();
  for (const pid_t peer : peers) {
    int status = 0;
    ::waitpid(peer, &status, 0);
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  if (!good) {
    fmt::print(stderr, "allreduce: a result was wrong or a replica failed\n");
    return 1;
  }
  std::sort(latencies.begin(), latencies.end());
  const double median = latencies[latencies.size() / 2];
  fmt::print(
      "allreduce of 8 bytes, {} replicas, {} calls: median {:.4f} ms, p99 {:.4f} ms (bound of the median {} ms)\n",
      options.size, calls, median, latencies[latencies.size() * 99 / 100], bound);
  return median <= bound ? 0 : 1;
}
