// Tests a watch against server behavior that cannot be provoked in a real server.
#include "kube/api/watch.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kube_watch_test {

using namespace adaptdl;
using namespace adaptdl::kube;
using namespace std::chrono_literals;
using nlohmann::json;
using Kind = Change::Kind;

namespace {

// Answers requests one by one with the given responses to lists and to watches. The last response of each kind is
// repeated for all further requests.
class Server {
 public:
  Server(std::vector<std::string> lists, std::vector<std::string> watches)
      : held_(bind_to(0)), lists_(std::move(lists)), watches_(std::move(watches)) {
    open();
  }
  ~Server() {
    close();
    ::close(held_);
  }

  // Closes all connections, as a dying server does; `open` restarts the server on the same port.
  void close() {
    // The listener is shut down first, so that a client cannot reconnect.
    ::shutdown(listener_, SHUT_RDWR);
    ended_ = true;
    thread_.join();
    ::close(listener_);
  }
  void open() {
    ended_ = false;
    listener_ = bind_to(port());
    REQUIRE(::listen(listener_, 8) == 0);
    thread_ = std::thread([this] { serve(); });
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port()); }
  // Returns the resourceVersions that the watches requested.
  std::vector<std::string> watched() {
    const std::lock_guard lock(mutex_);
    return watched_;
  }

 private:
  void serve() {
    for (int client; (client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; ::close(client)) {
      std::string request;
      char buffer[4096];
      for (ssize_t count; request.find("\r\n\r\n") == std::string::npos; request.append(buffer, std::size_t(count)))
        if ((count = ::read(client, buffer, sizeof buffer)) <= 0) break;
      const std::string answer = next(request.substr(0, request.find('\r')));
      ::send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
      while (answer.ends_with("open\n") && !ended_) std::this_thread::sleep_for(5ms);  // "open" is never completed
    }
  }
  std::string next(const std::string& line) {
    const std::lock_guard lock(mutex_);
    const bool watches = line.find("watch=true") != std::string::npos;
    if (watches) {
      const std::size_t begin = line.find("resourceVersion=") + 16;
      watched_.push_back(line.substr(begin, line.find_first_of("& ", begin) - begin));
    }
    std::vector<std::string>& answers = watches ? watches_ : lists_;
    std::string answer = answers.front();
    if (answers.size() > 1) answers.erase(answers.begin());
    return answer;
  }

  static int bind_to(std::uint16_t port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    return socket;
  }
  std::uint16_t port() const {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    ::getsockname(held_, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }

  const int held_;  // bound but never listens, so that no other process gets the port meanwhile
  int listener_ = -1;
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::vector<std::string> lists_, watches_, watched_;
  std::thread thread_;
};

json object(const std::string& name, const std::string& version, const std::string& uid = "") {
  return {{"metadata", {{"name", name}, {"uid", uid.empty() ? name : uid}, {"resourceVersion", version}}}};
}

std::string http(const std::string& body, const std::string& status = "200 OK") {
  return "HTTP/1.1 " + status + "\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n" + body;
}

std::string list(const std::string& version, const std::vector<json>& items) {
  return http(json{{"metadata", {{"resourceVersion", version}}}, {"items", items}}.dump());
}

std::string event(const std::string& type, const json& what) {
  return json{{"type", type}, {"object", what}}.dump() + "\n";
}

std::string gone() { return event("ERROR", {{"kind", "Status"}, {"code", 410}, {"message", "too old"}}); }

// Returns a response with the events, after which the server keeps the connection open.
std::string and_open(const std::string& events) {
  return "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + events + "open\n";
}

// Collects changes as "added a 1" until there are `count`.
class Watched {
 public:
  explicit Watched(const Server& server) {
    Access access;
    access.server = server.url();
    client_ = std::make_unique<Client>(access, Client::Options{30s, 60s, 0ms});
  }
  std::vector<std::string> until(std::size_t count, const std::function<void(std::size_t)>& act = {}) {
    std::vector<std::string> changes;
    watch(*client_, "/api/v1/things", {}, stop.get_token(), [&](Change&& change) {
      const char* kinds[] = {"added", "modified", "deleted", "synced", "interrupted"};
      std::string text = kinds[static_cast<int>(change.kind)];
      if (change.object.is_object())
        text += " " + change.object["metadata"]["name"].get<std::string>() + " " +
                change.object["metadata"].value("resourceVersion", "-");
      changes.push_back(text);
      if (act) act(changes.size());
      return changes.size() < count;
    });
    return changes;
  }
  std::stop_source stop;

 private:
  std::unique_ptr<Client> client_;
};

using Changes = std::vector<std::string>;

}  // namespace

TEST_CASE("a watch resumes from the last resourceVersion, including that of a bookmark") {
  Server server({list("5", {object("a", "3"), object("b", "5")})},
                {http(event("MODIFIED", object("a", "6")) + event("BOOKMARK", object("", "8"))),
                 and_open(event("DELETED", object("a", "9")) + event("ADDED", object("c", "10")))});
  CHECK(Watched(server).until(6) ==
        Changes{"added a 3", "added b 5", "synced", "modified a 6", "deleted a 9", "added c 10"});
  CHECK(server.watched() == Changes{"5", "8"});
}

TEST_CASE("a connection that breaks within an event neither loses nor duplicates events") {
  const std::string whole = event("ADDED", object("b", "6")), cut = event("ADDED", object("c", "7")).substr(0, 30);
  Server server({list("5", {object("a", "3")})}, {"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + whole + cut,
                                                  and_open(event("ADDED", object("c", "7")))});
  CHECK(Watched(server).until(4) == Changes{"added a 3", "synced", "added b 6", "added c 7"});
  CHECK(server.watched() == Changes{"5", "6"});
}

TEST_CASE("repeated and outdated events are ignored") {
  Server server({list("5", {object("a", "3")})},
                {and_open(event("ADDED", object("a", "3")) + event("MODIFIED", object("a", "7")) +
                          event("MODIFIED", object("a", "6")) + event("DELETED", object("x", "8")) +
                          event("ADDED", object("b", "9")))});
  CHECK(Watched(server).until(4) == Changes{"added a 3", "synced", "modified a 7", "added b 9"});
}

TEST_CASE("after a resourceVersion expires, the objects are listed again and only the differences are reported") {
  const std::string status = json{{"kind", "Status"}, {"code", 410}, {"reason", "Expired"}}.dump();
  for (const std::string& expired : {http(gone()), http(status, "410 Gone")}) {
    Server server({list("5", {object("a", "3"), object("b", "4"), object("c", "5")}),
                   list("20", {object("a", "3"), object("b", "17"), object("c", "18", "another"), object("d", "19")})},
                  {expired, and_open(event("MODIFIED", object("a", "21")))});
    CHECK(Watched(server).until(10) == Changes{"added a 3", "added b 4", "added c 5", "synced", "deleted c -",
                                               "modified b 17", "added c 18", "added d 19", "synced", "modified a 21"});
    CHECK(server.watched() == Changes{"5", "20"});
  }
}

TEST_CASE("an interruption is reported once, and so is the server's return") {
  Server server({list("5", {object("a", "3")})}, {and_open(""), and_open(event("ADDED", object("b", "6")))});
  std::thread back;
  std::atomic<bool> interrupted{false};
  const Changes changes = Watched(server).until(5, [&](std::size_t count) {
    if (count == 3) interrupted = true;
    if (count == 2) {
      back = std::thread([&] {
        while (server.watched().empty()) std::this_thread::sleep_for(1ms);
        server.close();
        while (!interrupted) std::this_thread::sleep_for(1ms);
        server.open();
      });
    }
  });
  back.join();
  CHECK(changes == Changes{"added a 3", "synced", "interrupted", "synced", "added b 6"});
  CHECK(server.watched() == Changes{"5", "5"});
}

TEST_CASE("a stop request ends an idle watch") {
  Server server({list("5", {})}, {and_open("")});
  Watched watched(server);
  std::chrono::steady_clock::time_point asked;
  std::thread stopper([&] {
    while (server.watched().empty()) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(50ms);
    asked = std::chrono::steady_clock::now();
    watched.stop.request_stop();
  });
  CHECK(watched.until(100) == Changes{"synced"});
  stopper.join();
  CHECK(std::chrono::steady_clock::now() - asked < 30s);
}

TEST_CASE("an API error in response to the first list is thrown") {
  const std::string status = json{{"kind", "Status"}, {"message", "no"}, {"reason", "Forbidden"}}.dump();
  Server server({http(status, "403 Forbidden")}, {and_open("")});
  CHECK_THROWS_AS(Watched(server).until(1), ApiError);
}

}  // namespace kube_watch_test
