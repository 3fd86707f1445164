// Replaces TensorBoard in a pod. `tensorboard --host=ADDRESS --logdir=DIRECTORY` serves, on port 6006, what a browser
// needs to check its connection: a redirect to the page, requests and responses of several megabytes, and a WebSocket.
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast.hpp>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>

namespace beast = boost::beast;
namespace http = beast::http;
using boost::asio::ip::tcp;

namespace {

constexpr std::size_t kLargest = 16 << 20;

// The page runs all checks in order and then posts to /done; the second script delays the page's load event until then.
constexpr const char* kPage = R"(<!doctype html><title>board</title><pre id="output"></pre>
<script>
const output = document.getElementById("output"), say = text => output.append(text + "\n");
const echo = (socket, message) => new Promise((done, failed) => {
  socket.onmessage = event => done(event.data); socket.onerror = socket.onclose = () => failed("the WebSocket is closed");
  socket.send(message);
});
(async () => {
  try {
    say("at " + location.pathname);
    say("runs " + await (await fetch("/data/runs")).text());
    const big = new Uint8Array(await (await fetch("/data/big")).arrayBuffer());
    say("big " + big.length + " " + big.every((byte, i) => byte === i % 251));
    say("counted " + await (await fetch("/data/count", {method: "POST", body: big})).text());
    const moved = await fetch("/data/moved");
    say("moved " + moved.redirected + " " + new URL(moved.url).pathname + " " + (new URL(moved.url).host === location.host));
    const socket = new WebSocket("ws://" + location.host + "/echo");
    await new Promise((done, failed) => { socket.onopen = done; socket.onerror = () => failed("no WebSocket"); });
    say("echo " + await echo(socket, "hello"));
    const long = "x".repeat(200000);
    say("echo of much " + (await echo(socket, long) === long));
    say("done");
  } catch (error) { say("failed: " + error); }
  fetch("/done", {method: "POST"});
})();
</script><script src="/wait"></script>)";

class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    opened_.wait_for(lock, std::chrono::seconds(60), [this] { return open_; });
    open_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

Gate page_done;
std::string logdir;

std::string runs() {
  std::string all;
  for (const auto& entry : std::filesystem::directory_iterator(logdir)) {
    std::ifstream in(entry.path());
    all += entry.path().filename().string() + "=" + std::string(std::istreambuf_iterator<char>(in), {});
  }
  return all;
}

std::string big() {
  std::string bytes(3 << 20, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i % 251);
  return bytes;
}

http::response<http::string_body> answer(const http::request<http::string_body>& request) {
  http::response<http::string_body> response{http::status::ok, request.version()};
  const std::string path(request.target());
  const std::string here = "http://" + std::string(request[http::field::host]);
  const auto move_to = [&](const std::string& to) {
    response.result(http::status::found);
    response.set(http::field::location, here + to);
  };
  response.set(http::field::content_type, path == "/board/" ? "text/html" : "text/plain");
  if (path == "/") {
    move_to("/board/");
  } else if (path == "/board/") {
    response.body() = kPage;
  } else if (path == "/data/runs") {
    response.body() = runs();
  } else if (path == "/data/big") {
    response.body() = big();
  } else if (path == "/data/count") {
    response.body() = std::to_string(request.body().size());
  } else if (path == "/data/moved") {
    move_to("/data/runs");
  } else if (path == "/done") {
    page_done.open();
  } else if (path == "/wait") {
    page_done.pass();
  } else {
    response.result(http::status::not_found);
  }
  response.keep_alive(request.keep_alive());
  response.prepare_payload();
  return response;
}

void echo(tcp::socket socket, const http::request<http::string_body>& request) {
  beast::websocket::stream<tcp::socket> stream(std::move(socket));
  stream.accept(request);
  for (beast::flat_buffer message;; message.clear()) {
    stream.read(message);
    stream.text(stream.got_text());
    stream.write(message.data());
  }
}

void serve(tcp::socket socket) {
  try {
    beast::flat_buffer buffer;
    for (bool more = true; more;) {
      http::request_parser<http::string_body> parser;
      parser.body_limit(kLargest);
      http::read(socket, buffer, parser);
      const auto request = parser.release();
      if (beast::websocket::is_upgrade(request)) return echo(std::move(socket), request);
      const auto response = answer(request);
      http::write(socket, response);
      more = response.keep_alive();
    }
  } catch (const std::exception&) {
    // The browser has closed the connection.
  }
}

}  // namespace

int main(int count, char** words) {
  std::signal(SIGTERM, [](int) { std::_Exit(0); });  // as PID 1 of a pod, the process ignores signals without a handler
  std::string host = "127.0.0.1";
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word.starts_with("--host=")) host = word.substr(7);
    if (word.starts_with("--logdir=")) logdir = word.substr(9);
  }
  boost::asio::io_context context;
  tcp::acceptor acceptor(context, {boost::asio::ip::make_address(host), 6006});
  std::cout << "serving " << logdir << std::endl;
  for (;;) std::thread(serve, acceptor.accept()).detach();
}
