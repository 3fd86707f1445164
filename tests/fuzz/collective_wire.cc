// Sends mutated bytes to running replicas, which must not crash, hang, use much memory, or be disturbed by strangers.
//
// Each round is one of three: strangers connect to a job, which must not be affected; an accepted replica sends mutated
// frames to rank 0; a rank 0 sends mutated frames to a replica. In one of ten rounds of the latter two kinds, the
// frames are not mutated, and the round must succeed. In all other rounds, a call must either succeed or throw
// CollectiveError. Usage: collective_wire [SECONDS [SEED]]
#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <future>
#include <random>
#include <thread>
#include <utility>

#include "adaptdl/collective.h"
#include "base/little_endian.h"
#include "collective/wire.h"
#include "protocol/handshake.h"

namespace {

using namespace adaptdl::collective;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using nlohmann::json;
using Random = std::mt19937_64;

constexpr std::size_t kMaxMessage = 1 << 20;
constexpr std::size_t kCalls = 3;
constexpr const char* kPurpose = "a sum";
constexpr unsigned kHangSeconds = 30;         // SIGALRM ends the process after this time; a round takes milliseconds
constexpr std::chrono::seconds kPatient{20};  // the timeout of rounds that must succeed
constexpr std::chrono::milliseconds kHasty{50};
constexpr long kMaxGrowthKib = 512 << 10;

std::uint64_t below(Random& random, std::uint64_t bound) { return random() % bound; }

void fail(const std::string& why) {
  fmt::print(stderr, "collective_wire: {}\n", why);
  std::_Exit(1);
}

Options options_of(int rank, std::uint16_t port, std::chrono::milliseconds timeout) {
  Options options;
  options.size = 2;
  options.rank = rank;
  options.master_port = port;
  options.job = "ns/fuzz";
  options.max_message = kMaxMessage;
  options.connect_timeout = options.timeout = timeout;
  return options;
}

class Socket {
 public:
  explicit Socket(int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) : fd_(fd) { wait_for(1s); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  // Sets the maximum time to wait for the other end.
  void wait_for(std::chrono::seconds time) const {
    const timeval patience{time.count(), 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  }

  static Socket connected(std::uint16_t port) {
    Socket socket;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket.fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("cannot connect");
    return socket;
  }
  std::uint16_t listen() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd_, 4) != 0 ||
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      fail("cannot listen");
    return ntohs(address.sin_port);
  }
  // Sends in pieces of random sizes, as a network may deliver them.
  void send(std::string_view bytes, Random& random) const {
    while (!bytes.empty()) {
      const auto piece = bytes.substr(0, 1 + below(random, 100000));
      if (::send(fd_, piece.data(), piece.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(piece.size())) return;
      bytes.remove_prefix(piece.size());
    }
  }
  // Returns when `size` bytes have been received, the connection has ended, or the timeout has expired.
  void receive(std::size_t size) const {
    std::string bytes(size, '\0');
    [[maybe_unused]] const auto count = ::recv(fd_, bytes.data(), size, MSG_WAITALL);
  }
  void receive_some() const {
    char buffer[4096];
    [[maybe_unused]] const auto count = ::recv(fd_, buffer, sizeof buffer, 0);
  }

 private:
  int fd_;
};

std::string frame(wire::Type type, wire::Kind kind, std::uint64_t sequence, const std::string& payload,
                  const std::string& purpose = {}) {
  return wire::encode_head({type, kind, sequence, {}, purpose}, payload.size()) + payload;
}

// Returns the frames that a correct peer sends for the calls of the other end.
std::string good_frames(bool as_root) {
  std::string bytes = as_root ? frame(wire::Type::kStart, wire::Kind::kAllreduce, 0, "") : "";
  for (std::uint64_t call = 1; call <= kCalls; ++call)
    bytes +=
        frame(wire::Type::kValue, wire::Kind::kAllreduce, call, std::string(1, static_cast<char>(call)),  // MessagePack
              as_root ? "" : kPurpose);
  return bytes;
}

// Seals a message without a secret: the proof is zeros.
std::string sealed(const std::string& body) {
  return std::string(32, '\0') + adaptdl::little_endian(static_cast<std::uint32_t>(body.size())) + body;
}

std::string opening() { return adaptdl::handshake::ConnectingEnd({}, "", 0).begin(); }

std::string hello_of(std::uint32_t rank, const std::string& job = "ns/fuzz") {
  return opening() + sealed(wire::encode(wire::Hello{rank, 2, kMaxMessage, job}));
}

std::string accepted() { return sealed(wire::encode(wire::Answer{true, ""})); }

void mutate_once(std::string& bytes, Random& random) {
  const std::size_t at = below(random, bytes.size() + 1);
  switch (below(random, 7)) {
    case 0:
      bytes.resize(at);
      return;
    case 1:
      bytes.insert(at, bytes.substr(at, below(random, 64)));
      return;
    case 2:
      bytes.insert(at, std::string(below(random, 2 * kMaxMessage), static_cast<char>(random())));
      return;
    case 3:
      bytes.erase(at, below(random, 32));
      return;
    case 4:
      for (std::size_t i = at; i < std::min(bytes.size(), at + 8); ++i) bytes[i] = static_cast<char>(random());
      return;
    case 5:
      bytes = frame(wire::Type::kValue, wire::Kind::kAllreduce, 1, std::string(below(random, 3 * kMaxMessage), '\x91'));
      return;
    default:
      if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(random, 8)));
  }
}

std::string mutated(std::string bytes, Random& random) {
  for (std::uint64_t times = 1 + below(random, 3); times > 0; --times) mutate_once(bytes, random);
  return bytes;
}

// Makes all calls of one replica and returns whether they succeeded. A call may throw only CollectiveError.
bool make_calls(const Options& options, const std::function<void(std::uint16_t)>& on_listening = {}) {
  try {
    Communicator communicator(options, on_listening);
    for (std::size_t call = 0; call < kCalls; ++call) communicator.allreduce(json(1), sum, kPurpose);
    return true;
  } catch (const CollectiveError&) {
    return false;
  }
}

void disturb_job(Random& random) {
  std::promise<std::uint16_t> listening;
  std::atomic<int> succeeded{0};
  const auto replica = [&](int rank, std::uint16_t port) {
    try {
      Communicator communicator(options_of(rank, port, kPatient),
                                [&](std::uint16_t bound) { listening.set_value(bound); });
      for (std::size_t call = 0; call < kCalls; ++call)
        if (communicator.allreduce(json(1), sum, kPurpose) != 2) return;
      communicator.teardown();
      ++succeeded;
    } catch (const CollectiveError& error) {
      fail(error.what());
    }
  };
  std::thread root([&] { replica(0, 0); });
  const std::uint16_t port = listening.get_future().get();
  std::vector<Socket> strangers;
  for (int i = 0; i < 8; ++i) {
    strangers.push_back(Socket::connected(port));
    strangers.back().send(mutated(hello_of(1, "another job"), random), random);
  }
  std::thread peer([&] { replica(1, port); });
  root.join();
  peer.join();
  if (succeeded != 2) fail("strangers disturbed a job");
}

void attack_root(Random& random, bool harmless) {
  std::promise<std::uint16_t> listening;
  bool succeeded = false;
  std::thread root([&] {
    succeeded = make_calls(options_of(0, 0, harmless ? kPatient : kHasty),
                           [&](std::uint16_t port) { listening.set_value(port); });
  });
  {
    const Socket socket = Socket::connected(listening.get_future().get());
    if (harmless) socket.wait_for(kPatient);
    socket.send(hello_of(1), random);
    socket.receive(opening().size() + accepted().size());  // what follows must not be sent earlier
    socket.send(harmless ? good_frames(false) : mutated(good_frames(false), random), random);
    if (harmless || below(random, 2) == 0) root.join();
  }
  if (root.joinable()) root.join();
  if (harmless && !succeeded) fail("rank 0 failed with a peer that did nothing wrong");
}

void attack_peer(Random& random, bool harmless) {
  Socket listener;
  if (harmless) listener.wait_for(kPatient);
  const std::uint16_t port = listener.listen();
  bool succeeded = false;
  std::thread peer([&] { succeeded = make_calls(options_of(1, port, harmless ? kPatient : kHasty)); });
  {
    const Socket socket(::accept(listener.fd(), nullptr, nullptr));
    if (harmless) socket.wait_for(kPatient);
    if (harmless || below(random, 2) == 0) {
      socket.receive(opening().size());
      socket.send(opening(), random);
      socket.receive(hello_of(1).size() - opening().size());
    }
    if (harmless) {
      socket.send(accepted() + frame(wire::Type::kStart, wire::Kind::kAllreduce, 0, ""), random);
      for (std::uint64_t call = 1; call <= kCalls; ++call) {
        socket.receive_some();
        socket.send(frame(wire::Type::kValue, wire::Kind::kAllreduce, call, "\x01"), random);
      }
      peer.join();
    } else {
      socket.send(mutated(accepted() + good_frames(true), random), random);
      if (below(random, 2) == 0) std::this_thread::sleep_for(1ms);
    }
  }
  if (peer.joinable()) peer.join();
  if (harmless && !succeeded) fail("a replica failed with a rank 0 that did nothing wrong");
}

long resident_peak_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 3;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::random_device{}();
  fmt::print("collective_wire: seed {}\n", seed);
  std::fflush(stdout);
  Random random(seed);
  const long before = resident_peak_kib();
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  std::uint64_t rounds = 0;
  for (; Clock::now() < end; ++rounds) {
    ::alarm(kHangSeconds);  // its signal ends a process that hangs
    const bool harmless = below(random, 10) == 0;
    switch (below(random, 3)) {
      case 0:
        disturb_job(random);
        break;
      case 1:
        attack_root(random, harmless);
        break;
      default:
        attack_peer(random, harmless);
    }
  }
  const long growth = resident_peak_kib() - before;
  fmt::print("collective_wire: {} rounds, memory grew by at most {} MiB\n", rounds, growth >> 10);
  if (growth > kMaxGrowthKib) fail("the replicas used too much memory");
  return 0;
}
