// Tests commands in containers with a server that sends given bytes, in pieces of any size, and then closes the
// connection.
#include "kube/stream/channels.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket.hpp>
#include <chrono>
#include <thread>

#include "golden.h"
#include "kube/stream/exec.h"
#include "kube_spdy_support.h"

namespace kube_channels_test {

using namespace adaptdl;
using namespace adaptdl::kube;
using namespace testing::spdy;
namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;

namespace {

// The IDs of the SPDY streams for a command with both outputs and no input.
constexpr std::uint32_t kStatusId = 1, kOutId = 3, kErrId = 5;
const std::string kSuccess = R"({"status": "Success"})";

using Request = beast::http::request<beast::http::string_body>;

class Server {
 public:
  using Serve = std::function<void(tcp::socket&, const Request&)>;
  explicit Server(Serve serve) : serve_(std::move(serve)), thread_([this] { run(); }) {}
  ~Server() {
    ended_ = true;
    boost::system::error_code ignored;
    tcp::socket(context_).connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }
  Client client() const {
    Access access;
    access.context = "lab";
    access.server = fmt::format("http://127.0.0.1:{}", acceptor_.local_endpoint().port());
    return Client(access);
  }

 private:
  void run() {
    while (true) {
      tcp::socket socket = acceptor_.accept();
      if (ended_) return;
      beast::flat_buffer buffer;
      Request request;
      boost::system::error_code error;
      beast::http::read(socket, buffer, request, error);
      if (!error) serve_(socket, request);
    }
  }

  Serve serve_;
  std::atomic<bool> ended_ = false;
  asio::io_context context_;
  tcp::acceptor acceptor_{context_, {asio::ip::address_v4::loopback(), 0}};
  std::thread thread_;
};

void send(tcp::socket& socket, const std::string& bytes, std::size_t piece) {
  boost::system::error_code error;
  socket.set_option(tcp::no_delay(true));
  for (std::size_t at = 0; at < bytes.size() && !error; at += piece)
    asio::write(socket, asio::buffer(std::string_view(bytes).substr(at, piece)), error);
}

// Closes the socket once the client has closed its end, since closing a socket with unread bytes may discard data that
// was sent.
void close(tcp::socket& socket, bool was_said = false) {
  boost::system::error_code error;
  std::string rest(4096, '\0');
  // A client that receives a WebSocket close frame replies to it before it waits for the server to close.
  if (was_said) socket.read_some(asio::buffer(rest), error);
  socket.shutdown(tcp::socket::shutdown_send, error);
  while (!error) socket.read_some(asio::buffer(rest), error);
}

// Returns the output of a command and how it ended, or the error, in one line.
std::string outcome(const Server& server) {
  Client client = server.client();
  std::string out, err;
  std::string end;
  try {
    Session session(client, {.name_space = "lab", .pod = "one", .container = {}, .command = {"true"}});
    while (session.read(
        [&](Session::From from, std::string_view text) { (from == Session::From::kOut ? out : err) += text; })) {
    }
    end = fmt::format("ended with {}", session.exit_code());
  } catch (const Error& error) {
    end = error.what();
  }
  return fmt::format("{}|{}|{}", out, err, end);
}

std::string over_spdy(const std::string& bytes, std::size_t piece = 1 << 20) {
  return outcome(Server([&](tcp::socket& socket, const Request&) {
    send(socket, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n" + bytes, piece);
    close(socket);
  }));
}

void refuse(tcp::socket& socket, const Request& request, const std::string& what) {
  beast::http::response<beast::http::string_body> answer{beast::http::status::forbidden, request.version()};
  answer.body() = what;
  answer.prepare_payload();
  beast::http::write(socket, answer);
  close(socket);
}

// Returns an unmasked WebSocket frame, as servers send it.
std::string frame(unsigned char head, const std::string& payload) {
  std::string text(1, static_cast<char>(head));
  if (payload.size() < 126) return text + number(static_cast<std::uint32_t>(payload.size()), 1) + payload;
  return text + number(126, 1) + number(static_cast<std::uint32_t>(payload.size()), 2) + payload;
}
std::string message(char channel, const std::string& payload) { return frame(0x82, channel + payload); }
const std::string kClose = frame(0x88, number(1000, 2));

// Runs a command through a server that rejects SPDY.
std::string over_websocket(const std::string& bytes, std::size_t piece = 1 << 20) {
  return outcome(Server([&](tcp::socket& socket, const Request& request) {
    if (request.method() == beast::http::verb::post) return refuse(socket, request, "");
    beast::websocket::stream<tcp::socket&> stream(socket);
    stream.set_option(beast::websocket::stream_base::decorator([](beast::websocket::response_type& answer) {
      answer.set(beast::http::field::sec_websocket_protocol, "v4.channel.k8s.io");
    }));
    stream.accept(request);
    send(socket, bytes, piece);
    close(socket, bytes.ends_with(kClose));
  }));
}

const std::string kBroke = "lost the connection to pod 'one': ";

}  // namespace

TEST_CASE("a command's output over SPDY does not depend on how the data is fragmented") {
  const std::string large(200'000, 'x');
  const std::string bytes = data(kOutId, "one ") + ping(2) + data(kErrId, "wrong") + data(kOutId, "two", true) +
                            go_away() + data(kStatusId, kSuccess, true) + data(kErrId, "", true);
  for (const std::size_t piece : {1u, 3u, 8u, 100u}) {
    CAPTURE(piece);
    CHECK(over_spdy(bytes, piece) == "one two|wrong|ended with 0");
  }
  CHECK(over_spdy(data(kOutId, large, true) + data(kErrId, "", true) + data(kStatusId, kSuccess, true), 1000) ==
        large + "||ended with 0");
}

TEST_CASE("a reset of a stream after the command's status or the stream's end is not an error") {
  const std::string sent = data(kOutId, "all") + data(kStatusId, kSuccess);
  for (const std::uint32_t id : {kStatusId, kOutId, kErrId}) CHECK(over_spdy(sent + reset(id)) == "all||ended with 0");
  CHECK(over_spdy(sent) == "all||ended with 0");
  CHECK(over_spdy(data(kOutId, "all", true) + reset(kOutId) + data(kStatusId, kSuccess)) == "all||ended with 0");
}

TEST_CASE("an SPDY connection that ends before the status or within a frame is reported as broken") {
  CHECK(over_spdy("") == "||" + kBroke + "closed by the server");
  CHECK(over_spdy(data(kOutId, "half")) == "half||" + kBroke + "closed by the server");
  CHECK(over_spdy(reset(kOutId)) == "||" + kBroke + "Connection reset by peer");
  const std::string all = data(kStatusId, kSuccess, true) + data(kOutId, "some output", true) + ping(2);
  const std::size_t status = data(kStatusId, kSuccess).size(), frames = status + 8 + 11;
  for (std::size_t size = status + 1; size < all.size(); ++size) {
    if (size == frames) continue;
    CAPTURE(size);
    const std::string result = over_spdy(all.substr(0, size), 1);
    CHECK(result.ends_with("||" + kBroke + "it ended in the middle of a message"));
  }
}

TEST_CASE("invalid SPDY frames cause a protocol error, even after the command's status") {
  const std::string status = data(kStatusId, kSuccess, true);
  const std::string malformed = "||" + kBroke + "Protocol error";
  for (const std::uint32_t id : {0u, 2u, 7u, 0x7FFFFFFFu}) {
    CAPTURE(id);
    CHECK(over_spdy(status + data(id, "x")) == malformed);
    CHECK(over_spdy(status + reset(id)) == malformed);
  }
  CHECK(over_spdy(status + control(8, std::string(1 << 20, 'h'))) == malformed);
  CHECK(over_spdy(status + data(kOutId, "", true) + data(kOutId, "more")) == malformed);
  CHECK(over_spdy(status + std::string(100, '\xff')) == malformed);
  CHECK(over_spdy(status + data(kOutId, "", true) + data(kOutId, "") + data(kErrId, "", true)) == "||ended with 0");
}

TEST_CASE("pings are answered, and a server that sends too many pings without reading the answers is disconnected") {
  std::string answer;
  const Server patient([&](tcp::socket& socket, const Request&) {
    send(socket,
         "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n" + ping(8) + ping(9), 1);
    std::string bytes(4096, '\0');
    while (answer.find(ping(8)) == std::string::npos) answer += bytes.substr(0, socket.read_some(asio::buffer(bytes)));
    send(socket, data(kStatusId, kSuccess), 1);
    close(socket);
  });
  CHECK(outcome(patient) == "||ended with 0");
  CHECK(answer.find(ping(9)) == std::string::npos);  // odd IDs belong to pings of the client

  std::string flood;
  for (std::uint32_t id = 2; id < 400'000; id += 2) flood += ping(id);
  const Server hostile([&](tcp::socket& socket, const Request&) {
    socket.set_option(asio::socket_base::receive_buffer_size(4096));
    send(socket, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", 1 << 20);
    for (int round = 0; round < 100; ++round) {
      boost::system::error_code error;
      asio::write(socket, asio::buffer(flood), error);
      if (error) return;
    }
  });
  CHECK(outcome(hostile) == "||" + kBroke + "Protocol error");
}

TEST_CASE("a command's output over a WebSocket does not depend on how the data is fragmented") {
  const std::string long_text(3000, 'x');
  const std::string bytes = message(1, "one ") + frame(0x89, "ping") + message(2, "wrong") + message(1, "") +
                            frame(0x82, "") + frame(0x02, "\1tw") + frame(0x80, "o") + message(1, long_text) +
                            message(9, "of no channel") + message(3, kSuccess) + kClose;
  for (const std::size_t piece : {1u, 3u, 100u, 100'000u}) {
    CAPTURE(piece);
    CHECK(over_websocket(bytes, piece) == "one two" + long_text + "|wrong|ended with 0");
  }
}

TEST_CASE("a WebSocket is reported as broken if it ends before the status or within a message, or has invalid frames") {
  CHECK(over_websocket("") == "||" + kBroke + "closed by the server");
  CHECK(over_websocket(kClose) == "||" + kBroke + "closed by the server");
  const std::string status = message(3, kSuccess);
  CHECK(over_websocket(status) == "||ended with 0");
  CHECK(over_websocket(status + message(1, "half").substr(0, 5)) ==
        "ha||" + kBroke + "it ended in the middle of a message");
  CHECK(over_websocket(status + frame(0x02, "\1half")) == "half||" + kBroke + "it ended in the middle of a message");
  CHECK(over_websocket(status + std::string("\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff\1of many", 18)) ==
        "of many||" + kBroke + "it ended in the middle of a message");
  for (const std::string& bad : {frame(0xF2, "reserved bits"), frame(0x83, "reserved code"),
                                 frame(0x80, "nothing to go on with"), frame(0x89, std::string(126, 'p')),
                                 frame(0x09, "a ping in parts"), frame(0x88, "x"), std::string("\x82\x85masked", 8)}) {
    CAPTURE(bad);
    const std::string result = over_websocket(bad);
    CAPTURE(result);
    CHECK(result.starts_with("||" + kBroke));
  }
}

TEST_CASE("if SPDY and WebSockets are both forbidden, the error for SPDY is reported") {
  const auto error_for = [](int get_code) {
    return outcome(Server([=](tcp::socket& socket, const Request& request) {
      const bool post = request.method() == beast::http::verb::post;
      if (post || get_code == 403)
        return refuse(
            socket, request,
            fmt::format(fmt::runtime(R"({{"kind": "Status", "message": "no {} of it"}})"), post ? "create" : "get"));
      beast::http::response<beast::http::empty_body> answer{beast::http::int_to_status(get_code), request.version()};
      answer.prepare_payload();
      beast::http::write(socket, answer);
      close(socket);
    }));
  };
  CHECK(error_for(403).starts_with(
      "||cannot connect to /api/v1/namespaces/lab/pods/one/exec: no create of it; the request was sent as "));
  CHECK_GOLDEN(error_for(404));
}

}  // namespace kube_channels_test
