#include "local/devices/agent_server.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <sstream>

#include "adaptdl/error.h"
#include "local/base/runtime_directory.h"
#include "local/devices/agent.h"

namespace adaptdl::sched {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
using Result = boost::system::error_code;

constexpr std::chrono::seconds kCycle{10};
constexpr std::chrono::milliseconds kSettleStep{100};
constexpr std::size_t kMaxSessions = 256, kMaxUnreadSize = std::size_t{1} << 20;
constexpr std::chrono::milliseconds kAcceptPause{50};
constexpr double kRestartCost = 10;  // seconds that a change of devices costs a run that must restart for it

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

int peer_pid(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

bool alive(int pid) { return ::kill(pid, 0) == 0 || errno == EPERM; }

// Returns, by run id, the process ids of the runs that the previous agent listed in its lock file, if they are still
// alive.
std::map<std::string, int> living_runs(int lock) {
  std::string text(kMaxSessions * 64, '\0');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(::pread(lock, text.data(), text.size(), 0), 0)));
  std::istringstream lines(text);
  std::map<std::string, int> runs;
  int pid = 0;
  for (std::string id; lines >> pid >> id;)
    if (pid > 0 && alive(pid)) runs.emplace(id, pid);
  return runs;
}

}  // namespace

// A Session is one connection. It is owned by its pending operations and the server.
class AgentServer::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(stream_protocol::socket socket, AgentServer& server)
      : server_(server),
        socket_(std::move(socket)),
        silence_(server.context_),
        pid_(peer_pid(socket_.native_handle())) {}

  void start() {
    silence_.expires_after(server_.times_.silent);
    silence_.async_wait([self = shared_from_this()](Result result) {
      if (!result && self->run_id.empty()) self->close();
    });
    read();
  }
  void send(std::string line) {
    unsent_ += line.size();
    outgoing_.push_back(std::move(line));
    if (unsent_ > kMaxUnreadSize) return close();
    if (outgoing_.size() == 1) write();
  }
  // Closes the connection after everything has been sent.
  void end() {
    ending_ = true;
    if (outgoing_.empty()) close();
  }
  void close() {
    if (std::exchange(closed_, true)) return;
    silence_.cancel();
    Result ignored;
    socket_.close(ignored);
    server_.closed(shared_from_this());
  }
  int pid() const noexcept { return pid_; }

  std::string run_id;  // id of the connected run; empty until it is known

 private:
  void read() {
    asio::async_read_until(socket_, asio::dynamic_buffer(incoming_, kMaxMessageLength), '\n',
                           [self = shared_from_this()](Result result, std::size_t size) {
                             if (self->closed_ || self->ending_) return;
                             if (result == asio::error::not_found) {
                               self->send(error_line("the message is too long"));
                               return self->end();
                             }
                             if (result) return self->close();
                             const std::string line = self->incoming_.substr(0, size - 1);
                             self->incoming_.erase(0, size);
                             self->server_.take(self, line);
                             if (!self->closed_ && !self->ending_) self->read();
                           });
  }
  void write() {
    asio::async_write(socket_, asio::buffer(outgoing_.front()),
                      [self = shared_from_this()](Result result, std::size_t size) {
                        if (self->closed_) return;
                        if (result) return self->close();
                        self->unsent_ -= size;
                        self->outgoing_.pop_front();
                        if (!self->outgoing_.empty()) return self->write();
                        if (self->ending_) self->close();
                      });
  }

  AgentServer& server_;
  stream_protocol::socket socket_;
  asio::steady_timer silence_;
  const int pid_;
  std::string incoming_;
  std::deque<std::string> outgoing_;
  std::size_t unsent_ = 0;
  bool ending_ = false, closed_ = false;
};

AgentServer::AgentServer(const Fd& listener, const Fd& lock, const AgentTimes& times)
    : lock_(lock.get()), times_(times), expected_(living_runs(lock_)) {
  acceptor_.assign(stream_protocol(), ::dup(listener.get()));
}

void AgentServer::run() {
  accept();
  settle();
  tick();
  await_idle();
  context_.run();
}

void AgentServer::accept() {
  acceptor_.async_accept([this](Result result, stream_protocol::socket socket) {
    if (result == asio::error::operation_aborted) return;
    if (result) {
      retry_.expires_after(kAcceptPause);
      return retry_.async_wait([this](Result) { accept(); });
    }
    if (is_own_user(socket.native_handle()) && sessions_.size() < kMaxSessions)
      (*sessions_.insert(std::make_shared<Session>(std::move(socket), *this)).first)->start();
    accept();
  });
}

void AgentServer::take(const std::shared_ptr<Session>& session, std::string_view line) {
  RunMessage message;
  try {
    message = parse_run_message(line);
    if (!session->run_id.empty() && session->run_id != message.id)
      throw UsageError("field 'id' must be the same in all messages of a connection");
  } catch (const UsageError& error) {
    session->send(error_line(error.what()));
    return session->end();
  }
  if (message.leaves) {
    session->run_id.clear();
    forget(message.id);
    return session->close();
  }
  if (runs_.empty()) fairness_ = message.fairness;
  const bool came = session->run_id.empty();
  Run& run = runs_[message.id];
  if (came) {
    // A run that has lost its connection opens a new one, and again reports the devices that it holds.
    if (run.user != 0) shares_.remove(run.user);
    run.user = next_user_++;
    run.vanished.reset();
    run.session = session;
    run.pid = session->pid();
    session->run_id = message.id;
    expected_.erase(message.id);
    write_lock();
  }
  if (shares_.set(run.user, std::move(message.user), message.seen, now())) decide_soon();
  tell();
}

void AgentServer::closed(const std::shared_ptr<Session>& session) {
  sessions_.erase(session);
  if (!session->run_id.empty()) vanish(session->run_id, session.get());
}

void AgentServer::vanish(const std::string& run_id, const Session* session) {
  const auto found = runs_.find(run_id);
  if (found == runs_.end() || found->second.session.lock().get() != session) return;
  Run& run = found->second;
  run.session.reset();
  run.vanished = std::make_unique<asio::steady_timer>(context_, times_.vanished);
  run.vanished->async_wait([this, run_id](Result result) {
    if (!result) forget(run_id);
  });
}

void AgentServer::forget(const std::string& run_id) {
  const auto found = runs_.find(run_id);
  if (found == runs_.end()) return;
  shares_.remove(found->second.user);
  runs_.erase(found);
  write_lock();
  decide_soon();
  await_idle();
}

// After this time, the agent stops waiting for those runs of the previous agent that have not connected.
void AgentServer::settle() {
  settle_.expires_after(times_.settle);
  settle_.async_wait([this](Result) { expected_.clear(); });
}

void AgentServer::tick() {
  tick_.expires_after(settled_ ? std::chrono::milliseconds(kCycle) : kSettleStep);
  tick_.async_wait([this](Result) {
    decide_soon();
    tick();
  });
}

// Messages that arrive together lead to a single decision.
void AgentServer::decide_soon() {
  if (std::exchange(deciding_, true)) return;
  asio::post(context_, [this] {
    deciding_ = false;
    decide();
  });
}

void AgentServer::decide() {
  // Until the runs of the previous agent have connected, it is unknown what they hold.
  std::erase_if(expected_, [](const auto& run) { return !alive(run.second); });
  if (!expected_.empty()) return;
  settled_ = true;
  const PolicyOptions options{0, kRestartCost, fairness_};
  shares_.decide(*make_policy("adaptive", options), now());
  tell();
}

void AgentServer::tell() {
  if (!settled_) return;
  for (const auto& [user, share] : shares_.take_changes()) {
    const auto run = std::ranges::find(runs_, user, [](const auto& each) { return each.second.user; });
    if (run == runs_.end()) continue;
    if (const auto session = run->second.session.lock()) session->send(to_line(share));
  }
}

void AgentServer::await_idle() {
  idle_.expires_after(times_.idle);
  idle_.async_wait([this](Result result) {
    if (!result && runs_.empty()) context_.stop();
  });
}

void AgentServer::write_lock() {
  std::string text;
  for (const auto& [id, run] : runs_) text += fmt::format("{} {}\n", run.pid, id);
  // The next agent must also wait for the runs that this agent is still waiting for.
  for (const auto& [id, pid] : expected_) text += fmt::format("{} {}\n", pid, id);
  if (::pwrite(lock_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) [[maybe_unused]]
    const int cut = ::ftruncate(lock_, static_cast<off_t>(text.size()));
}

}  // namespace adaptdl::sched
