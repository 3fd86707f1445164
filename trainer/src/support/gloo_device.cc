#include "support/gloo_device.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#if defined(ADAPTDL_GLOO_PAIRS_LISTEN) || defined(ADAPTDL_GLOO_DEVICE_LISTENS)

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <gloo/transport/tcp/unbound_buffer.h>
#ifdef ADAPTDL_GLOO_DEVICE_LISTENS
#include <gloo/transport/tcp/socket.h>
#include <linux/filter.h>
#endif
#include <netdb.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <future>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "adaptdl/collective.h"
#include "base/signals_blocked.h"
#include "base/socket.h"
#include "collective/rank_connections.h"
#include "protocol/handshake.h"

namespace adaptdl {
namespace {

namespace tcp = ::gloo::transport::tcp;

struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
};

Endpoint endpoint_of(const sockaddr_storage& address) {
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "0";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), sizeof address, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  return {host, static_cast<std::uint16_t>(std::stoi(port))};
}

// Accepts connections from replicas with higher ranks.
class HigherRanks {
 public:
  HigherRanks(const std::string& address, const handshake::Terms& terms, int rank, int size,
              std::chrono::milliseconds timeout)
      : stop_(::eventfd(0, EFD_CLOEXEC)) {
    std::set<int> ranks;
    for (int other = rank + 1; other < size; ++other) ranks.insert(other);
    net::Listener listener = net::listen_at(address);
    address_ = tcp::Address::fromSockName(listener.fd.get());
    const auto deadline = net::Clock::now() + timeout;
    const SignalsBlocked blocked;
    thread_ = std::thread([this, listener = std::move(listener), terms, ranks, deadline]() mutable {
      try {
        connected_.set_value(accept_ranks(listener, terms, ranks, deadline, stop_.get()));
      } catch (...) {
        connected_.set_exception(std::current_exception());
      }
    });
  }
  ~HigherRanks() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t size = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }
  HigherRanks(const HigherRanks&) = delete;
  HigherRanks& operator=(const HigherRanks&) = delete;

  // Returns the address at which replicas with higher ranks reach this replica.
  const tcp::Address& address() const noexcept { return address_; }
  // Waits until all replicas with higher ranks are connected, and returns the connection to `rank`. Throws
  // CollectiveError if a replica does not connect in time.
  Fd take(int rank) {
    if (taken_.valid()) fds_ = taken_.get();
    return std::move(fds_.at(rank));
  }

 private:
  Fd stop_;
  tcp::Address address_;
  std::promise<std::map<int, Fd>> connected_;
  std::future<std::map<int, Fd>> taken_ = connected_.get_future();
  std::map<int, Fd> fds_;
  std::thread thread_;
};

#ifdef ADAPTDL_GLOO_DEVICE_LISTENS
// Makes the kernel drop all data for the device's own listening socket, because Gloo would otherwise accept any number
// of connections.
void mute(const tcp::Address& listening) {
  const Endpoint wanted = endpoint_of(listening.getSockaddr());
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop};
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    const int fd = std::atoi(it->path().filename().c_str());
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    int listens = 0;
    socklen_t flag_size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &flag_size) != 0 || listens == 0) continue;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
    const Endpoint found = endpoint_of(address);
    if (found.port == wanted.port && found.host == wanted.host)
      ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
  }
}
#endif

struct UnexpectedConnection {};

// The constructor throws UnexpectedConnection if another process connected while the base class was listening.
class Pair final : public tcp::Pair {
 public:
  Pair(tcp::Context* context, tcp::Device* device, int rank, std::chrono::milliseconds timeout,
       const handshake::Terms& terms, HigherRanks& higher_ranks)
      : tcp::Pair(context, device, rank, timeout), terms_(terms), higher_ranks_(higher_ranks) {
    const std::lock_guard lock(m_);
#ifdef ADAPTDL_GLOO_PAIRS_LISTEN
    // The base class is already listening.
    if (state_ != LISTENING) throw UnexpectedConnection();
    device_->unregisterDescriptor(fd_, this);
    ::close(std::exchange(fd_, -1));
    state_ = INITIALIZING;
#endif
    self_ = higher_ranks.address();
  }

  void connect(const std::vector<char>& bytes) override {
    Fd fd;
    if (context_->rank < rank_) {
      fd = higher_ranks_.take(rank_);
    } else {
      const auto [host, port] = endpoint_of(tcp::Address(bytes).getSockaddr());
      fd = connect_as(context_->rank, host, port, terms_, net::Clock::now() + getTimeout());
    }
#ifdef ADAPTDL_GLOO_PAIRS_LISTEN
    const std::lock_guard lock(m_);
    fd_ = fd.release();
    handleConnected();
#else
    connectCallback(std::make_shared<tcp::Socket>(fd.release()), tcp::Error::kSuccess);
#endif
  }

  // The base class's close() would leave this process's own operations waiting.
  void close() override { signalExceptionExternal("the connection was closed"); }

 protected:
  // When a connection ends, the base class does not wake operations whose messages are partly received or sent.
  void changeState(state next) noexcept override {
    if (next == CLOSED && state_ != CLOSED) {
      const auto error = ex_ ? ex_ : std::make_exception_ptr(::gloo::IoException("the connection was lost"));
      wake(rx_, error);
      for (const tcp::Op& operation : tx_) wake(operation, error);
    }
    tcp::Pair::changeState(next);
  }

 private:
  // Gives access to a protected function.
  struct Waiter : tcp::UnboundBuffer {
    static void fail(tcp::UnboundBuffer* buffer, const std::exception_ptr& error) {
      (buffer->*(&Waiter::signalException))(error);
    }
  };

  static void wake(const tcp::Op& operation, const std::exception_ptr& error) {
    const ::gloo::NonOwningPtr<tcp::UnboundBuffer> buffer(operation.ubuf);
    if (buffer) Waiter::fail(buffer.operator->(), error);
  }

  const handshake::Terms& terms_;
  HigherRanks& higher_ranks_;
};

class Context final : public tcp::Context {
 public:
  Context(std::shared_ptr<tcp::Device> device, int own_rank, int ranks, std::string address, handshake::Terms terms)
      : tcp::Context(std::move(device), own_rank, ranks), address_(std::move(address)), terms_(std::move(terms)) {}
  // The pairs refer to the other members, so they are destroyed first.
  ~Context() override { pairs_.clear(); }

  std::unique_ptr<::gloo::transport::Pair>& createPair(int other) override {
    if (!higher_ranks_) higher_ranks_ = std::make_unique<HigherRanks>(address_, terms_, rank, size, getTimeout());
    for (;;) {
      try {
        auto pair = std::make_unique<Pair>(this, device_.get(), other, getTimeout(), terms_, *higher_ranks_);
        return pairs_.at(static_cast<std::size_t>(other)) = std::move(pair);
      } catch (const UnexpectedConnection&) {  // this is rare, so try again
      }
    }
  }

 private:
  const std::string address_;
  const handshake::Terms terms_;
  std::unique_ptr<HigherRanks> higher_ranks_;
};

class Device final : public tcp::Device {
 public:
  Device(const tcp::attr& attr, std::string address, const std::string& secret)
      : tcp::Device(attr), address_(std::move(address)), terms_{secret, "gloo"} {
#ifdef ADAPTDL_GLOO_DEVICE_LISTENS
    mute(nextAddress());
#endif
  }

  std::shared_ptr<::gloo::transport::Context> createContext(int rank, int size) override {
    return std::make_shared<Context>(std::static_pointer_cast<tcp::Device>(shared_from_this()), rank, size, address_,
                                     terms_);
  }

 private:
  const std::string address_;
  const handshake::Terms terms_;
};

}  // namespace

std::shared_ptr<::gloo::transport::Device> make_gloo_device(const std::string& address, const std::string& secret) {
  if (std::getenv("GLOO_DEVICE_TRANSPORT") != nullptr) return c10d::ProcessGroupGloo::createDeviceForHostname(address);
  tcp::attr attr;
  attr.hostname = address;
  return std::make_shared<Device>(tcp::CreateDeviceAttr(attr), address, secret);
}

}  // namespace adaptdl

#else

namespace adaptdl {

std::shared_ptr<::gloo::transport::Device> make_gloo_device(const std::string& address, const std::string&) {
  return c10d::ProcessGroupGloo::createDeviceForHostname(address);
}

}  // namespace adaptdl

#endif

#ifdef ADAPTDL_GLOO_PAIRS_SIGNAL
#include <gloo/transport/tcp/pair.h>

#include <typeinfo>
#endif

namespace adaptdl {
namespace {

#ifdef ADAPTDL_GLOO_PAIRS_SIGNAL
// Gives access to a protected function.
struct GlooPair : ::gloo::transport::tcp::Pair {
  static void fail(::gloo::transport::tcp::Pair& pair) {
    (pair.*(&GlooPair::signalExceptionExternal))("the connection was closed");
  }
};

// Closes a connection of Gloo's own device, whose close() would leave this process's own operations waiting.
void close_pair(::gloo::transport::Pair& pair) {
  if (typeid(pair) == typeid(::gloo::transport::tcp::Pair))
    GlooPair::fail(static_cast<::gloo::transport::tcp::Pair&>(pair));
}
#else
void close_pair(::gloo::transport::Pair&) {}
#endif

}  // namespace

void close_connections(::gloo::Context& context, int rank, int size) {
  for (int other = 0; other < size; ++other)
    if (other != rank && context.getPair(other)) close_pair(*context.getPair(other));
  context.closeConnections();
}

}  // namespace adaptdl
