#include "kube/stream/exec.h"

#include <fmt/format.h>

#include <boost/asio/error.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "base/foreign_json.h"
#include "http/http.h"
#include "kube/stream/channels.h"

namespace adaptdl::kube {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using nlohmann::json;

constexpr std::size_t kAhead = std::size_t{4} << 20;  // limit for output that has not been read yet
constexpr std::size_t kMaxStatusSize = std::size_t{1} << 20;

Query query_of(const ExecOptions& options) {
  const auto flag = [](bool on) { return on ? "true" : "false"; };
  Query query{{"stdin", flag(options.in)},
              {"stdout", flag(options.out)},
              {"stderr", flag(options.err && !options.tty)},
              {"tty", flag(options.tty)}};
  if (!options.container.empty()) query.emplace_back("container", options.container);
  for (const std::string& word : options.command) query.emplace_back("command", word);
  return query;
}

std::unique_ptr<Channels> open_channels(asio::io_context& context, Client& client, const ExecOptions& options) {
  const std::string at = path(kPods, options.name_space, options.pod, options.command.empty() ? "attach" : "exec");
  const Query query = query_of(options);
  Declined declined;
  if (auto channels = open_spdy(context, client, at, query, declined)) return channels;
  try {
    return open_websocket(context, client, at, query);
  } catch (const ApiError& error) {
    // Report the refusal of the SPDY request (verb `create`): a message about the verb `get` would make users ask for a
    // permission that newer servers and kubectl do not need.
    if (error.code() == 403 && declined.code == 403) client.refuse(at, declined.code, declined.body);
    throw;
  }
}

struct Outcome {
  int code = -1;
  std::string failure;  // why there is no exit code
};

// Parses the status channel's message.
Outcome outcome_of(const std::string& text) {
  json status = parse_foreign_json(text);
  if (!status.is_object()) return {-1, "invalid status from the server"};
  if (const auto word = status.find("status"); word != status.end() && *word == "Success") return {0, ""};
  status["kind"] = "Status";  // nodes omit it
  const Status parsed = parse_status(500, status.dump());
  if (parsed.reason == "NonZeroExitCode" && parsed.details.is_object()) {
    const auto causes = parsed.details.find("causes");
    if (causes != parsed.details.end() && causes->is_array()) {
      for (const json& cause : *causes) {
        if (!cause.is_object() || cause.value("reason", json()) != "ExitCode") continue;
        const json message = cause.value("message", json());
        const std::string digits = message.is_string() ? message.get<std::string>() : "";
        int code = -1;
        if (std::from_chars(digits.data(), digits.data() + digits.size(), code).ec == std::errc()) return {code, ""};
      }
    }
  }
  return {-1, parsed.message};
}

}  // namespace

struct Session::Impl {
  struct Piece {
    From from;
    std::vector<char> bytes;
  };

  Impl(Client& client, const ExecOptions& options)
      : what(fmt::format("pod '{}'", options.pod)), channels(open_channels(context, client, options)) {
    context.restart();
    receive();
    channels->keep_alive();
    thread = std::thread([this] { context.run(); });
  }
  ~Impl() {
    context.stop();
    thread.join();
  }

  // `receive` and `end` run in the context's thread.
  void receive() {
    channels->receive([this](error_code error, Channel channel, std::string_view bytes) {
      if (error) return end(error);
      if (channel == Channel::kStatus && status.size() < kMaxStatusSize) status.append(bytes);
      {
        const std::scoped_lock lock(mutex);
        if (channel == Channel::kOut || channel == Channel::kErr) {
          queued += bytes.size();
          pieces.push_back({channel == Channel::kOut ? From::kOut : From::kErr, {bytes.begin(), bytes.end()}});
          changed.notify_all();
        }
        paused = queued > kAhead;
        if (paused) return;
      }
      asio::post(context, [this] { receive(); });
    });
  }
  void end(error_code error) {
    const std::scoped_lock lock(mutex);
    ended = true;
    // After reporting how a command ended, servers close the connection in various ways.
    if (!status.empty() && error != kCutOff && error != kMalformed)
      outcome = outcome_of(status);
    else
      broken = error == asio::error::eof ? "closed by the server"
               : error == kCutOff        ? "it ended in the middle of a message"
                                         : error.message();
    changed.notify_all();
  }

  // Runs in the caller's thread.
  void send(std::span<const std::byte> bytes) {
    {
      const std::scoped_lock lock(mutex);
      if (ended) throw connection_error();
    }
    std::promise<error_code> done;
    std::future<error_code> result = done.get_future();
    asio::post(context, [&] { channels->send(bytes, [&](error_code error) { done.set_value(error); }); });
    if (!result.get()) return;
    const std::scoped_lock lock(mutex);
    throw connection_error();
  }
  http::ConnectionError connection_error() const {
    return http::ConnectionError(
        ended && broken.empty()
            ? fmt::format("the command in {} has ended and accepts no more input", what)
            : fmt::format("lost the connection to {}{}{}", what, broken.empty() ? "" : ": ", broken));
  }

  const std::string what;
  asio::io_context context{1};
  std::unique_ptr<Channels> channels;
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  std::string status;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Piece> pieces;  // guarded by `mutex`, like the members below up to `outcome`
  std::size_t queued = 0;
  bool paused = false, ended = false;
  std::string broken;
  Outcome outcome;
  std::thread thread;
};

Session::Session(Client& client, const ExecOptions& options) : impl_(std::make_unique<Impl>(client, options)) {}
Session::~Session() = default;

bool Session::read(const std::function<void(From, std::string_view)>& sink) {
  std::deque<Impl::Piece> taken;
  {
    std::unique_lock lock(impl_->mutex);
    impl_->changed.wait(lock, [&] { return impl_->ended || !impl_->pieces.empty(); });
    taken.swap(impl_->pieces);
    impl_->queued = 0;
    if (std::exchange(impl_->paused, false)) asio::post(impl_->context, [impl = impl_.get()] { impl->receive(); });
    if (taken.empty()) {
      if (!impl_->broken.empty()) throw impl_->connection_error();
      return false;
    }
  }
  for (const Impl::Piece& piece : taken) sink(piece.from, {piece.bytes.data(), piece.bytes.size()});
  return true;
}

void Session::write(std::span<const std::byte> bytes) {
  if (!bytes.empty()) impl_->send(bytes);
}

int Session::exit_code() const {
  const std::scoped_lock lock(impl_->mutex);
  if (!impl_->outcome.failure.empty())
    throw Error(fmt::format("the command in {} could not be run: {}", impl_->what, impl_->outcome.failure));
  return impl_->outcome.code;
}

Finished run(Client& client, const ExecOptions& options, std::size_t limit) {
  Session session(client, options);
  Finished finished{-1, "", ""};
  const auto keep = [&](Session::From from, std::string_view text) {
    if (text.size() > limit - finished.out.size() - finished.err.size())
      throw Error(fmt::format("the command in pod '{}' printed more than {} bytes", options.pod, limit));
    (from == Session::From::kOut ? finished.out : finished.err) += text;
  };
  while (session.read(keep)) {
  }
  finished.exit_code = session.exit_code();
  return finished;
}

}  // namespace adaptdl::kube
