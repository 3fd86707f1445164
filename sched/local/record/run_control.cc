#include "local/record/run_control.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <boost/asio.hpp>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "adaptdl/error.h"
#include "base/foreign_json.h"
#include "base/signals_blocked.h"
#include "local/base/runtime_directory.h"

namespace adaptdl::sched {
namespace asio = boost::asio;
namespace fs = std::filesystem;
using asio::local::stream_protocol;
using nlohmann::json;
namespace {

constexpr std::size_t kMaxConnections = 64;
constexpr std::size_t kMaxRequestLength = 4096;  // bytes
// How long a client may take to send its request.
constexpr auto kRequestTime = std::chrono::seconds(10);
// How often the record is written when only the progress changes.
constexpr auto kWriteEvery = std::chrono::seconds(1);
constexpr auto kRetryAccept = std::chrono::milliseconds(100);

constexpr const char* kEnded = "it ended before the request was done";

std::string answer_line(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace) + '\n'; }

json refusal(const std::string& why) { return {{"ok", false}, {"why", why}}; }

// A connection, which carries one request. Only the server's thread uses it.
struct ControlConnection {
  ControlConnection(asio::io_context& io, std::size_t& open)
      : socket(io), timer(io), buffer(kMaxRequestLength), connections(open) {
    ++connections;
  }
  ~ControlConnection() { --connections; }
  ControlConnection(const ControlConnection&) = delete;
  ControlConnection& operator=(const ControlConnection&) = delete;

  stream_protocol::socket socket;
  asio::steady_timer timer;
  asio::streambuf buffer;
  std::string line;
  std::size_t& connections;
};

void send(const std::shared_ptr<ControlConnection>& connection, const json& answer) {
  connection->line = answer_line(answer);
  asio::async_write(connection->socket, asio::buffer(connection->line),
                    [connection](const boost::system::error_code&, std::size_t) {});
}

}  // namespace

// The destination of an answer. The connection belongs to the server's thread, and is only stored here.
struct RunRequest::Answer {
  asio::io_context& io;
  std::shared_ptr<ControlConnection> connection;
};

RunRequest::RunRequest(Kind which, std::unique_ptr<Answer> answer) : kind(which), answer_(std::move(answer)) {}

RunRequest::RunRequest(RunRequest&&) noexcept = default;

RunRequest& RunRequest::operator=(RunRequest&& other) noexcept {
  answer(refusal(kEnded));
  kind = other.kind;
  min = other.min;
  max = other.max;
  share = other.share;
  answer_ = std::move(other.answer_);
  return *this;
}

RunRequest::~RunRequest() { answer(refusal(kEnded)); }

void RunRequest::answer(const json& text) noexcept {
  const auto to = std::exchange(answer_, nullptr);
  if (!to) return;
  asio::post(to->io, [connection = std::move(to->connection), text] { send(connection, text); });
}

void RunRequest::accept(const json& more) {
  json text = {{"ok", true}};
  text.update(more);
  answer(text);
}

void RunRequest::refuse(const std::string& why) { answer(refusal(why)); }

class RunControlServer {
 public:
  RunControlServer(const RunRecord& record, const RunStatus& status)
      : record_(record),
        path_(runtime_directory() / record.socket_name()),
        acceptor_(io_),
        writer_(io_),
        retry_(io_),
        event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        status_(status) {
    if (!event_) throw Error(fmt::format("cannot create an event descriptor: {}", std::strerror(errno)));
    acceptor_.assign(stream_protocol(), listen_at(path_).release());
    if (!record_.write(status, path_.string())) {
      throw Error(
          fmt::format("cannot write file '{}'; is the disk full?", (record_.directory() / "run.json").string()));
    }
  }
  ~RunControlServer() { stop(); }

  void serve() {
    if (thread_.joinable()) return;
    accept();
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { io_.run(); });
  }

  // Stops answering. Answers that were already given are sent as far as possible without waiting.
  void stop() {
    if (stopped_) return;
    stopped_ = true;
    take();
    if (thread_.joinable()) {
      asio::post(io_, [this] { asio::post(io_, [this] { io_.stop(); }); });
      thread_.join();
    }
    std::error_code ignored;
    fs::remove(path_, ignored);
  }

  int fd() const noexcept { return event_.get(); }

  std::vector<RunRequest> take() {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = ::read(event_.get(), &count, sizeof count);
    const std::lock_guard lock(mutex_);
    return std::exchange(requests_, {});
  }

  void publish(const RunStatus& status) {
    const std::lock_guard lock(mutex_);
    const bool at_once = status.state != status_.state || status.why != status_.why ||
                         status.replicas != status_.replicas || status.wanted != status_.wanted ||
                         status.restarts != status_.restarts;
    status_ = status;
    asio::post(io_, [this, at_once] { write_soon(at_once); });
  }

  bool write(const RunStatus& status) { return record_.write(status, path_.string()); }

 private:
  void accept() {
    acceptor_.async_wait(stream_protocol::acceptor::wait_read, [this](const boost::system::error_code& error) {
      if (error) return;
      // A replica that is being started could inherit a connection from Asio's own accept().
      Fd fd = accept_own_user(acceptor_.native_handle());
      if (!fd) return accept_later();
      if (connections_ < kMaxConnections) {
        const auto connection = std::make_shared<ControlConnection>(io_, connections_);
        connection->socket.assign(stream_protocol(), fd.release());
        read(connection);
      }
      accept();
    });
  }

  // If no descriptor is free, trying again at once would be a busy loop.
  void accept_later() {
    retry_.expires_after(kRetryAccept);
    retry_.async_wait([this](const boost::system::error_code& error) {
      if (!error) accept();
    });
  }

  void read(const std::shared_ptr<ControlConnection>& connection) {
    connection->timer.expires_after(kRequestTime);
    connection->timer.async_wait([connection](const boost::system::error_code& error) {
      if (!error) connection->socket.close();
    });
    asio::async_read_until(connection->socket, connection->buffer, '\n',
                           [this, connection](const boost::system::error_code& error, std::size_t) {
                             connection->timer.cancel();
                             if (error == asio::error::not_found)
                               return send(connection, refusal("the request is too long"));
                             if (error) return;
                             std::istream in(&connection->buffer);
                             std::string line;
                             std::getline(in, line);
                             handle(connection, parse_foreign_json(line));
                           });
  }

  void handle(const std::shared_ptr<ControlConnection>& connection, const json& request) {
    static const std::pair<const char*, RunRequest::Kind> kKinds[] = {{"resize", RunRequest::Kind::kResize},
                                                                      {"share", RunRequest::Kind::kShare},
                                                                      {"checkpoint", RunRequest::Kind::kCheckpoint},
                                                                      {"stop", RunRequest::Kind::kStop},
                                                                      {"kill", RunRequest::Kind::kKill}};
    const json name = request.is_object() ? request.value("request", json()) : json();
    if (name == "status") {
      const std::lock_guard lock(mutex_);
      return send(connection, {{"ok", true}, {"status", to_json(status_)}});
    }
    for (const auto& [word, kind] : kKinds) {
      if (name != word) continue;
      const auto number = [&request](const char* key) {
        const auto found = request.find(key);
        return found != request.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
      };
      const std::int64_t min = number("min"), max = number("max");
      constexpr std::int64_t kMaxSize = 1'000'000;
      if (kind == RunRequest::Kind::kResize && (min < 1 || max < min || max > kMaxSize))
        return send(connection, refusal(fmt::format("resize expects integers with 1 <= min <= max <= {}", kMaxSize)));
      const auto share = kind == RunRequest::Kind::kShare ? parse_share_request(request) : RunShare();
      if (!share)
        return send(connection, refusal(fmt::format("share expects a weight from {} to {}, and at least 1 replica",
                                                    kMinRunWeight, kMaxRunWeight)));
      RunRequest made(kind, std::make_unique<RunRequest::Answer>(RunRequest::Answer{io_, connection}));
      made.min = static_cast<int>(min);
      made.max = static_cast<int>(max);
      made.share = *share;
      const std::lock_guard lock(mutex_);
      requests_.push_back(std::move(made));
      const std::uint64_t one = 1;
      [[maybe_unused]] const ssize_t size = ::write(event_.get(), &one, sizeof one);
      return;
    }
    send(connection, refusal("unknown request: expected status, resize, share, checkpoint, stop or kill"));
  }

  void write_soon(bool at_once) {
    if (!at_once && writing_) return;
    writing_ = true;
    writer_.expires_at(at_once ? std::chrono::steady_clock::now() : written_ + kWriteEvery);
    writer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;  // the timer was set to an earlier time
      writing_ = false;
      written_ = std::chrono::steady_clock::now();
      std::unique_lock lock(mutex_);
      const RunStatus status = status_;
      lock.unlock();
      write(status);
    });
  }

  const RunRecord& record_;
  fs::path path_;
  std::size_t connections_ = 0;  // used by the server's thread; outlives io_, since the connections in io_ update it
  asio::io_context io_{1};
  stream_protocol::acceptor acceptor_;
  asio::steady_timer writer_, retry_;
  Fd event_;
  std::thread thread_;
  bool stopped_ = false;

  // Only the server's thread uses these members.
  bool writing_ = false;
  std::chrono::steady_clock::time_point written_{};

  std::mutex mutex_;  // guards the members below
  RunStatus status_;
  std::vector<RunRequest> requests_;
};

RunControl::RunControl(RunRecord record, RunStatus status)
    : record_(std::move(record)), fresh_(!record_.taken_over()), status_(std::move(status)) {
  try {
    server_ = std::make_unique<RunControlServer>(record_, status_);
  } catch (...) {
    if (fresh_) record_.remove();
    throw;
  }
}

RunControl::~RunControl() { finish(); }

void RunControl::serve() { server_->serve(); }
int RunControl::fd() const noexcept { return server_->fd(); }
std::vector<RunRequest> RunControl::take() { return server_->take(); }
void RunControl::publish() { server_->publish(status_); }

void RunControl::finish() {
  if (!server_) return;
  server_->stop();
  server_->write(status_);
  server_.reset();
}

void RunControl::discard() {
  if (!fresh_) return finish();
  if (!server_) return;
  server_->stop();
  server_.reset();
  record_.remove();
}

}  // namespace adaptdl::sched
