#include "supervisor/connection.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <utility>

namespace adaptdl::sched {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::asio::ip::tcp;

constexpr std::size_t kMaxHeaderSize = 8 << 10, kMaxBodySize = 64 << 10, kFirstRead = 1 << 10;  // bytes
constexpr std::chrono::seconds kDrainTime{2};

template <typename Text>
std::string_view view(const Text& text) {
  return {text.data(), text.size()};
}

// Returns the answer to a request that could not be read, or nullopt if the client is no longer waiting for an answer.
std::optional<Answer> refusal(beast::error_code result) {
  if (result == http::error::body_limit)
    return Answer{413, fmt::format("the body is larger than {} bytes", kMaxBodySize), ""};
  if (result == http::error::header_limit || result == http::error::buffer_overflow)
    return Answer{431, fmt::format("the header is larger than {} bytes", kMaxHeaderSize), ""};
  if (result == http::error::end_of_stream || result == http::error::partial_message) return {};
  if (result.category() != beast::error_code(http::error::bad_method).category()) return {};
  return Answer{400, "invalid HTTP request", ""};
}

}  // namespace

template <typename Handler>
auto Connection::then(Handler handler) {
  return [self = shared_from_this(), handler](Result result, std::size_t = 0) { handler(result); };
}

Connection::Connection(tcp::socket socket, ConnectionHub& hub, const SupervisorOptions& options)
    : hub_(hub), options_(options), stream_(std::move(socket)), timer_(stream_.get_executor()) {}

void Connection::start() {
  Result ignored;
  stream_.socket().set_option(tcp::no_delay(true), ignored);
  stream_.socket().non_blocking(true, ignored);
  read_first();
}

void Connection::read_first() {
  hub_.idle(*this, true);
  parser_.emplace();
  parser_->header_limit(kMaxHeaderSize);
  parser_->body_limit(kMaxBodySize);
  if (buffer_.size() > 0) return read_rest();
  stream_.expires_after(options_.idle_time);
  stream_.async_read_some(buffer_.prepare(kFirstRead), [self = shared_from_this()](Result result, std::size_t size) {
    if (result) return self->close();
    self->buffer_.commit(size);
    self->read_rest();
  });
}

void Connection::read_rest() {
  stream_.expires_after(options_.request_time);
  http::async_read(stream_, buffer_, *parser_, then([this](Result result) { take_request(result); }));
}

void Connection::take_request(Result result) {
  if (result) {
    keep_ = false;
    if (auto refused = refusal(result)) return write(std::move(*refused));
    return close();
  }
  hub_.idle(*this, false);
  const auto& message = parser_->get();
  keep_ = message.keep_alive();
  const auto header = [&](http::field name) {
    const auto found = message.find(name);
    return found == message.end() ? std::string_view() : view(found->value());
  };
  auto reply = hub_.handle({view(message.method_string()), view(message.target()), header(http::field::authorization),
                            header(http::field::host), message.body(), ends()});
  if (auto* later = std::get_if<Wait>(&reply)) return wait(std::move(*later));
  write(std::get<Answer>(std::move(reply)));
}

ConnectionEnds Connection::ends() {
  // If the client has disconnected, the ends are empty, so that client_owner() does not find an owner.
  Result ignored;
  return {stream_.socket().remote_endpoint(ignored), stream_.socket().local_endpoint(ignored)};
}

void Connection::wait(Wait wait) {
  poll_ = std::move(wait.poll);
  waiting_ = true;
  hub_.waiting(*this, true);
  stream_.expires_never();
  timer_.expires_after(wait.timeout);
  timer_.async_wait(then([this, number = ++waits_](Result result) {
    if (!result && waiting_ && number == waits_) answer(ask_again());
  }));
  watch_client();
}

void Connection::watch_client() {
  // If the client has already sent its next request, its disconnection cannot be detected.
  if (buffer_.size() > 0) return;
  watching_ = true;
  stream_.socket().async_wait(tcp::socket::wait_read, then([this](Result result) {
                                watching_ = false;
                                if (answer_) return write(*std::exchange(answer_, {}));
                                if (result) return close();
                                char byte = 0;
                                stream_.socket().receive(boost::asio::buffer(&byte, 1), tcp::socket::message_peek,
                                                         result);
                                if (result && result != boost::asio::error::would_block) close();
                              }));
}

void Connection::answer(Answer answer, bool last) {
  waiting_ = false;
  hub_.waiting(*this, false);
  timer_.cancel();
  if (last) keep_ = false;
  if (!watching_) return write(std::move(answer));
  answer_ = std::move(answer);
  Result ignored;
  stream_.socket().cancel(ignored);
}

void Connection::write(Answer answer) {
  if (closed_) return;
  response_.emplace(http::int_to_status(static_cast<unsigned>(answer.status)), 11);
  const std::string usual = answer.status == 200 ? "application/json" : "text/plain; charset=utf-8";
  response_->set(http::field::content_type, answer.type.empty() ? usual : answer.type);
  if (!answer.allow.empty()) response_->set(http::field::allow, answer.allow);
  response_->keep_alive(keep_);
  response_->body() = std::move(answer.body);
  response_->prepare_payload();
  stream_.expires_after(options_.request_time);
  http::async_write(stream_, *response_, then([this](Result result) {
                      if (result) return close();
                      if (keep_) return read_first();
                      stream_.socket().shutdown(tcp::socket::shutdown_send, result);
                      stream_.expires_after(kDrainTime);
                      hub_.idle(*this, true);
                      drain();
                    }));
}

void Connection::drain() {
  stream_.async_read_some(boost::asio::buffer(discarded_), then([this](Result result) {
                            if (result) return close();
                            drain();
                          }));
}

void Connection::close() {
  if (std::exchange(closed_, true)) return;
  hub_.idle(*this, false);
  if (std::exchange(waiting_, false)) hub_.waiting(*this, false);
  timer_.cancel();
  stream_.close();
  hub_.closed(*this);
}

}  // namespace adaptdl::sched
