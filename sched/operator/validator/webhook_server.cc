#include "operator/validator/webhook_server.h"

#include <fcntl.h>
#include <fmt/format.h>

// Used by boost/asio/awaitable.hpp in Boost 1.74, which does not include it.
#include <utility>

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "base/signals_blocked.h"

namespace adaptdl::sched {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace web = boost::beast::http;
using asio::use_awaitable;
using asio::ip::tcp;
using std::chrono::seconds;
using Stream = beast::ssl_stream<beast::tcp_stream>;

// An object in etcd is at most 1.5 MB large, and a review contains two objects.
constexpr std::uint64_t kMaxBody = 4 << 20;
// Maximum total size, in bytes, of the request bodies that are being read or processed. JSON takes up to 30 times as
// much memory once parsed.
constexpr std::int64_t kMaxBodies = 8 << 20;
constexpr std::uint32_t kMaxHeader = 16 << 10;
constexpr int kMaxConnections = 256;
constexpr seconds kRequestTime{10};  // for a handshake, for the rest of a request, and for an answer
// The API server keeps idle connections for 90 s.
constexpr seconds kIdleTime{120};
constexpr seconds kCloseTime{1};
constexpr std::chrono::milliseconds kReservePause{5};
// A client that has announced a body but has not sent it within this time must make way for other clients.
constexpr std::chrono::milliseconds kSlowBody{500};
constexpr std::chrono::milliseconds kAcceptPause{50};  // after a failed accept, for example if no descriptors are free

// Increases a count by one until this object is destroyed.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

// Reserves a part of kMaxBodies until this object is destroyed.
class ReservedBytes {
 public:
  explicit ReservedBytes(std::atomic<std::int64_t>& total) : total_(total) {}
  ~ReservedBytes() { total_ -= bytes_; }
  ReservedBytes(const ReservedBytes&) = delete;
  ReservedBytes& operator=(const ReservedBytes&) = delete;

  // Returns false, and reserves nothing, if the total would exceed kMaxBodies.
  bool reserve(std::int64_t bytes) {
    std::int64_t before = total_;
    do {
      if (before + bytes > kMaxBodies) return false;
    } while (!total_.compare_exchange_weak(before, before + bytes));
    bytes_ = bytes;
    return true;
  }

 private:
  std::atomic<std::int64_t>& total_;
  std::int64_t bytes_ = 0;
};

// The connections whose client must send something, in the order in which they began to wait.
class WaitingConnections {
 public:
  // A connection is in the list while its entry exists.
  class Entry {
   public:
    Entry(WaitingConnections& list, const std::shared_ptr<Stream>& stream) : list_(list) {
      const std::lock_guard lock(list_.mutex_);
      number_ = list_.next_++;
      list_.waiting_[number_] = {stream, waits_, std::chrono::steady_clock::now()};
    }
    ~Entry() {
      *waits_ = false;
      const std::lock_guard lock(list_.mutex_);
      list_.waiting_.erase(number_);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    WaitingConnections& list_;
    std::uint64_t number_ = 0;
    std::shared_ptr<bool> waits_ = std::make_shared<bool>(true);  // used only on the connection's strand
  };

  // Closes the first connection if it has waited for `min_time`, unless its client sends something first. Returns false
  // if no connection has waited that long.
  bool close_first(std::chrono::milliseconds min_time = {}) {
    std::shared_ptr<Stream> stream;
    std::shared_ptr<bool> waits;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) return false;
      const Waiting& first = waiting_.begin()->second;
      if (std::chrono::steady_clock::now() - first.since < min_time) return false;
      stream = first.stream.lock();
      waits = first.waits;
      waiting_.erase(waiting_.begin());
    }
    if (!stream) return true;
    const auto executor = stream->get_executor();
    asio::post(executor, [stream = std::move(stream), waits] {
      if (*waits) beast::get_lowest_layer(*stream).close();
    });
    return true;
  }

 private:
  struct Waiting {
    std::weak_ptr<Stream> stream;
    std::shared_ptr<bool> waits;
    std::chrono::steady_clock::time_point since;
  };

  std::mutex mutex_;
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, Waiting> waiting_;
};

bool has_header(const beast::flat_buffer& buffer) {
  const std::string_view text(static_cast<const char*>(buffer.data().data()), buffer.size());
  return text.find("\r\n\r\n") != std::string_view::npos;
}

}  // namespace

struct WebhookServer::Impl {
  Impl(Handler given, std::chrono::milliseconds max_wait) : handler(std::move(given)), patience(max_wait) {}
  asio::awaitable<void> accept();
  asio::awaitable<void> serve(tcp::socket socket, std::shared_ptr<asio::ssl::context> with);
  asio::awaitable<void> answer_requests(const std::shared_ptr<Stream>& stream);
  asio::awaitable<bool> reserve(ReservedBytes& bytes, std::int64_t length);

  const Handler handler;
  const std::chrono::milliseconds patience;
  std::mutex mutex;
  std::shared_ptr<asio::ssl::context> tls;  // guarded by mutex; null until serve() is called
  std::atomic<int> connections = 0, answering = 0;
  std::atomic<std::int64_t> bodies = 0;  // bytes
  std::atomic<bool> draining = false;
  // All connections that are waiting for their clients (`waiting`), and those that are waiting for a body (`sending`).
  WaitingConnections waiting, sending;
  asio::io_context context{kThreads};
  tcp::acceptor acceptor{context};
  std::vector<std::thread> threads;
};

// Waits until the bytes can be reserved, and reserves them. Returns false if that takes longer than `patience`.
asio::awaitable<bool> WebhookServer::Impl::reserve(ReservedBytes& bytes, std::int64_t length) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!bytes.reserve(length)) {
    if (std::chrono::steady_clock::now() >= end) co_return false;
    sending.close_first(kSlowBody);
    asio::steady_timer pause(co_await asio::this_coro::executor, kReservePause);
    co_await pause.async_wait(use_awaitable);
  }
  co_return true;
}

namespace {

web::response<web::string_body> to_response(WebhookServer::Answer answer) {
  web::response<web::string_body> response(web::int_to_status(static_cast<unsigned>(answer.status)), 11);
  response.set(web::field::content_type, answer.status == 200 ? "application/json" : "text/plain; charset=utf-8");
  if (answer.status == 405) response.set(web::field::allow, "POST");
  response.body() = std::move(answer.body);
  return response;
}

}  // namespace

// Throws boost::system::system_error once the connection ends.
asio::awaitable<void> WebhookServer::Impl::answer_requests(const std::shared_ptr<Stream>& stream) {
  auto& connection = beast::get_lowest_layer(*stream);
  beast::flat_buffer buffer;
  for (bool keep = true, first = true; keep; first = false) {
    std::optional<WaitingConnections::Entry> waits(std::in_place, waiting, stream);
    connection.expires_after(buffer.size() == 0 && !first ? kIdleTime : kRequestTime);
    while (!has_header(buffer) && buffer.size() <= kMaxHeader) {
      const bool begins = buffer.size() == 0;
      buffer.commit(co_await stream->async_read_some(buffer.prepare(4096), use_awaitable));
      if (begins) connection.expires_after(kRequestTime);
    }
    waits.reset();
    web::request_parser<web::string_body> parser;
    parser.header_limit(kMaxHeader);
    parser.body_limit(kMaxBody);
    co_await web::async_read_header(*stream, buffer, parser, use_awaitable);
    // The API server sends the length of every request. A request without a length reserves the maximum.
    const auto length = static_cast<std::int64_t>(parser.content_length().value_or(kMaxBody));
    ReservedBytes reserved(bodies);
    WebhookServer::Answer answer{405, "use POST\n"};
    std::optional<Counted> counted;
    connection.expires_never();
    if (!co_await reserve(reserved, length)) {
      answer = {503, "too many large jobs are being checked at once; try again\n"};
    } else {
      std::optional<WaitingConnections::Entry> sends;
      if (static_cast<std::int64_t>(buffer.size()) < length) {
        waits.emplace(waiting, stream);
        sends.emplace(sending, stream);
      }
      connection.expires_after(kRequestTime);
      co_await web::async_read(*stream, buffer, parser, use_awaitable);
      sends.reset();
      waits.reset();
      connection.expires_never();
      counted.emplace(answering);
      const std::string_view target(parser.get().target().data(), parser.get().target().size());
      const std::string path(target.substr(0, target.find('?')));
      if (parser.get().method() == web::verb::post) answer = handler(path, parser.get().body());
    }
    auto response = to_response(std::move(answer));
    keep = parser.get().keep_alive() && response.result() == web::status::ok && !draining;
    response.keep_alive(keep);
    response.prepare_payload();
    connection.expires_after(kRequestTime);
    co_await web::async_write(*stream, response, use_awaitable);
  }
}

asio::awaitable<void> WebhookServer::Impl::accept() {
  for (;;) {
    tcp::socket socket(asio::make_strand(context));
    boost::system::error_code error;
    co_await acceptor.async_accept(socket, asio::redirect_error(use_awaitable, error));
    if (error) {
      asio::steady_timer pause(context, kAcceptPause);
      co_await pause.async_wait(asio::redirect_error(use_awaitable, error));
      continue;
    }
    std::shared_ptr<asio::ssl::context> with;
    {
      const std::lock_guard lock(mutex);
      with = tls;
    }
    if (!with || (connections >= kMaxConnections && !waiting.close_first())) continue;
    const auto executor = socket.get_executor();
    asio::co_spawn(executor, serve(std::move(socket), std::move(with)), asio::detached);
  }
}

asio::awaitable<void> WebhookServer::Impl::serve(tcp::socket socket, std::shared_ptr<asio::ssl::context> with) {
  const Counted counted(connections);
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  const auto stream = std::make_shared<Stream>(std::move(socket), *with);
  auto& connection = beast::get_lowest_layer(*stream);
  try {
    {
      const WaitingConnections::Entry waits(waiting, stream);
      connection.expires_after(kRequestTime);
      co_await stream->async_handshake(asio::ssl::stream_base::server, use_awaitable);
    }
    co_await answer_requests(stream);
    const WaitingConnections::Entry waits(waiting, stream);
    connection.expires_after(kCloseTime);
    co_await stream->async_shutdown(asio::redirect_error(use_awaitable, ignored));
  } catch (const boost::system::system_error&) {
    // The client has disconnected, is too slow, or does not send HTTP.
  }
}

WebhookServer::WebhookServer(const std::string& address, std::uint16_t port, Handler handler,
                             std::chrono::milliseconds patience)
    : impl_(std::make_unique<Impl>(std::move(handler), patience)) {
  boost::system::error_code error;
  const auto parsed = asio::ip::make_address(address, error);
  if (error) throw UsageError(fmt::format("invalid address '{}': expected an IP address", address));
  const tcp::endpoint endpoint(parsed, port);
  tcp::acceptor& acceptor = impl_->acceptor;
  acceptor.open(endpoint.protocol(), error);
  if (!error && ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC) != 0)
    error = {errno, asio::error::get_system_category()};
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) throw Error(fmt::format("cannot listen on {}:{}: {}", address, port, error.message()));
  asio::co_spawn(impl_->context, impl_->accept(), asio::detached);
  const SignalsBlocked blocked;
  for (int i = 0; i < kThreads; ++i) impl_->threads.emplace_back([context = &impl_->context] { context->run(); });
}

WebhookServer::~WebhookServer() {
  impl_->context.stop();
  for (std::thread& thread : impl_->threads) thread.join();
}

std::uint16_t WebhookServer::port() const noexcept {
  boost::system::error_code error;
  return impl_->acceptor.local_endpoint(error).port();
}

void WebhookServer::serve(const ServingCertificate& certificate) {
  auto tls = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  boost::system::error_code error;
  tls->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, error);
  if (!error) tls->use_certificate_chain(asio::buffer(certificate.certificate), error);
  if (!error) tls->use_private_key(asio::buffer(certificate.key), asio::ssl::context::pem, error);
  if (error) throw Error(fmt::format("cannot use the certificate: {}", error.message()));
  const std::lock_guard lock(impl_->mutex);
  impl_->tls = std::move(tls);
}

void WebhookServer::drain() noexcept { impl_->draining = true; }
bool WebhookServer::is_answering() const noexcept { return impl_->answering > 0; }

}  // namespace adaptdl::sched
