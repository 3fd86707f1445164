#include "ray/head_shell.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "base/base64.h"
#include "base/printable.h"
#include "ray/job_server.h"
#include "ray/log_stream.h"
#include "ray/package.h"

namespace adaptdl::ray {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr std::size_t kMaxMessage = std::size_t{4} << 20;        // bytes of input in one message
constexpr std::uint64_t kMaxUnread = 8;                          // messages that shell.py has not read yet
constexpr std::size_t kMaxUnreadOutput = std::size_t{64} << 20;  // bytes of a command's output
constexpr seconds kStayEvery(30);                                // less than SILENCE in shell.py
constexpr seconds kPatience(30);                                 // how long an outage of the job server may last
constexpr seconds kEnd(10);                                      // how long the job may take to end by itself
// Ray delays the output of a followed log by one to three seconds, so the log is polled while it is short.
constexpr std::size_t kMaxPolledLog = std::size_t{256} << 10;
constexpr auto kPollEvery = std::chrono::milliseconds(100);
constexpr int kPollsPerLook = 10;  // number of polls without output before the job's status is read

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::pair<std::string_view, std::string_view> split(std::string_view text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return {text, {}};
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace

class HeadShell::Session {
 public:
  Session(const Access& access, std::string id, const std::stop_token& stop)
      : server_(access, kPatience), impatient_(access), id_(std::move(id)), stop_(stop) {}

  void begin(const Access& access, const std::map<std::string, std::string>& metadata,
             const std::filesystem::path& scripts, const std::string& directory) {
    const Package package(
        {.project = {}, .files = {{"shell.py", scripts / "shell.py"}, {"start.sh", scripts / "start.sh"}}});
    const std::string uri = server_.upload(package.name(), package.path(), stop_, [](std::uint64_t) {});
    server_.submit({.id = id_,
                    .entrypoint = "exec sh start.sh shell.py \"$ADAPTDL_SESSION\" \"$ADAPTDL_DIRECTORY\"",
                    .package_uri = uri,
                    .environment = {{"ADAPTDL_SESSION", id_}, {"ADAPTDL_DIRECTORY", directory}},
                    .metadata = metadata});
    reader_ = std::jthread([this, access](const std::stop_token& enough) { read_log(access, enough); });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop_, [this] { return ready_ || failure_; });
    if (!ready_) kube::check(stop_);
    if (!ready_) throw Error(*failure_);
    keepalive_ = std::jthread([this](const std::stop_token& enough) { keep_alive(enough); });
  }

  // Asks the job to end.
  void ask_to_end() noexcept {
    try {
      bool ready = false;
      {
        const std::lock_guard lock(mutex_);
        ready = ready_;
      }
      if (ready) {
        put(json{{"do", "end"}}, {}, impatient_);
      } else {
        impatient_.stop(id_);
      }
    } catch (const std::exception&) {
      // If it receives no messages, shell.py ends by itself.
    }
  }

  void end() noexcept {
    keepalive_ = std::jthread();
    ask_to_end();
    try {
      if (const auto job = impatient_.wait_for_end(id_, kEnd); job && job->ended()) impatient_.remove(id_);
    } catch (const std::exception&) {
      // The record of the job remains.
    }
    reader_ = std::jthread();
  }

  int start(const std::vector<std::string>& command) {
    int number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = next_process_++;
      processes_[number];
    }
    send({{"do", "start"}, {"process", number}, {"command", command}}, {});
    return number;
  }

  void write(int number, std::string_view bytes) {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kMaxMessage)))
      send({{"do", "write"}, {"process", number}}, bytes.substr(0, kMaxMessage));
  }

  bool read(int number, const kube::Process::Sink& out, const kube::Process::Sink& err) {
    std::deque<Output> pieces;
    {
      std::unique_lock lock(mutex_);
      State& state = processes_.at(number);
      wait(lock, [&state] { return !state.output.empty() || state.exit_code; });
      pieces = std::exchange(state.output, {});
      state.unread = 0;
    }
    changed_.notify_all();
    for (const Output& piece : pieces) (piece.error ? err : out)(piece.bytes);
    return !pieces.empty();
  }

  int exit_code(int number) {
    const std::lock_guard lock(mutex_);
    return processes_.at(number).exit_code.value();
  }

  void forget(int number) noexcept {
    try {
      bool running = false;
      {
        const std::lock_guard lock(mutex_);
        running = !processes_.at(number).exit_code;
        processes_.erase(number);
      }
      changed_.notify_all();
      if (running) put({{"do", "kill"}, {"process", number}}, {}, impatient_);
    } catch (const std::exception&) {
      // The command is killed at the latest when the shell ends.
    }
  }

 private:
  struct Output {
    bool error = false;
    std::string bytes;
  };
  struct State {
    std::deque<Output> output;
    std::size_t unread = 0;  // bytes in `output`
    std::optional<int> exit_code;
  };

  template <typename Condition>
  void wait(std::unique_lock<std::mutex>& lock, Condition condition) {
    changed_.wait(lock, [&] { return condition() || failure_; });
    if (!condition()) throw Error(*failure_);
  }

  void send(const json& header, std::string_view bytes) {
    {
      std::unique_lock lock(mutex_);
      wait(lock, [this] { return sent_ < read_ + kMaxUnread; });
    }
    put(header, bytes, server_);
  }

  void put(const json& header, std::string_view bytes, JobServer& server) {
    std::string message = header.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
    message += bytes;
    const std::lock_guard sending(sending_);
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      if (failure_) throw Error(*failure_);
      // A message whose upload seemed to fail may have been read.
      number = std::max(sent_, read_);
    }
    server.put(fmt::format("{}-{}.zip", id_, number), std::move(message));
    const std::lock_guard lock(mutex_);
    sent_ = number + 1;
  }

  void keep_alive(const std::stop_token& enough) {
    std::mutex unused;
    std::condition_variable_any never;
    for (std::unique_lock lock(unused);
         !never.wait_for(lock, enough, kStayEvery, [&] { return enough.stop_requested(); });) {
      try {
        put({{"do", "stay"}}, {}, server_);
      } catch (const std::exception&) {
        // If the outage lasts, the log's reader reports it.
      }
    }
  }

  void read_log(const Access& access, const std::stop_token& enough) {
    std::string partial, last, failure;
    const auto take = [&](std::string_view piece) {
      partial += piece;
      std::size_t begin = 0;
      for (std::size_t end; (end = partial.find('\n', begin)) != std::string::npos; begin = end + 1) {
        const std::string_view line = std::string_view(partial).substr(begin, end - begin);
        if (!take_line(line, enough) && !line.empty()) last = line;
      }
      partial.erase(0, begin);
    };
    try {
      std::size_t passed = poll_log(take, enough);
      std::size_t skipped = 0;
      follow_logs(access, id_, enough, [&](std::string_view piece) {
        const std::size_t known = std::min(piece.size(), passed - skipped);
        skipped += known;
        take(piece.substr(known));
        return !enough.stop_requested();
      });
      failure = fmt::format("job '{}' on the head node has ended: {}", id_, one_line(last));
    } catch (const std::exception& error) {
      failure = error.what();
    }
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    changed_.notify_all();
  }

  // Passes the log to `sink` until the log is too long to poll or the job has ended. Returns the number of bytes
  // passed.
  std::size_t poll_log(const std::function<void(std::string_view)>& sink, const std::stop_token& enough) {
    std::size_t passed = 0;
    for (int idle = 0; !enough.stop_requested() && passed < kMaxPolledLog; std::this_thread::sleep_for(kPollEvery)) {
      const std::string text = server_.logs(id_);
      if (text.size() > passed) {
        sink(std::string_view(text).substr(passed));
        passed = text.size();
        idle = 0;
      } else if (++idle % kPollsPerLook == 0) {
        const auto job = server_.find(id_);
        if (!job || job->ended()) break;
      }
    }
    return passed;
  }

  // Returns false if the line is not from shell.py.
  bool take_line(std::string_view line, const std::stop_token& enough) {
    if (!line.starts_with('@')) return false;
    const auto [key, rest] = split(line.substr(1));
    std::unique_lock lock(mutex_);
    if (key == "ready") {
      ready_ = true;
    } else if (key == "read") {
      read_ = static_cast<std::uint64_t>(parse_int(rest).value_or(0));
    } else if (const auto number = parse_int(key)) {
      const auto [kind, value] = split(rest);
      const auto find = [this, number] { return processes_.find(*number); };
      changed_.wait(lock, enough,
                    [&] { return find() == processes_.end() || find()->second.unread < kMaxUnreadOutput; });
      const auto found = find();
      if (found == processes_.end()) return true;
      if (kind == "x") {
        found->second.exit_code = parse_int(value).value_or(-1);
      } else {
        auto bytes = decode_base64(value);
        if (!bytes) throw Error("the output of a command on the head node is damaged");
        found->second.unread += bytes->size();
        found->second.output.push_back({kind == "e", std::move(*bytes)});
      }
    } else {
      return false;
    }
    changed_.notify_all();
    return true;
  }

  JobServer server_;
  JobServer impatient_;  // for requests that an outage must not delay
  const std::string id_;
  const std::stop_token stop_;
  std::mutex sending_;  // held while a message is sent; locked before mutex_
  std::mutex mutex_;    // guards the members below
  std::condition_variable_any changed_;
  std::map<int, State> processes_;
  int next_process_ = 0;
  std::uint64_t sent_ = 0, read_ = 0;  // messages
  bool ready_ = false;
  std::optional<std::string> failure_;  // why there will be no more output
  std::jthread reader_, keepalive_;
};

HeadShell::HeadShell(const Access& access, const std::string& id, const std::map<std::string, std::string>& metadata,
                     const std::filesystem::path& scripts, const std::string& directory, const std::stop_token& stop)
    : session_(std::make_shared<Session>(access, id, stop)),
      cleanup_(std::make_unique<kube::Cleanup>([session = session_] { session->ask_to_end(); })) {
  try {
    session_->begin(access, metadata, scripts, directory);
  } catch (...) {
    cleanup_->release();
    session_->end();
    throw;
  }
}

HeadShell::~HeadShell() {
  cleanup_->release();
  session_->end();
}

std::unique_ptr<kube::Process> HeadShell::start(const std::vector<std::string>& command, bool) {
  class HeadProcess final : public kube::Process {
   public:
    HeadProcess(std::shared_ptr<Session> session, const std::vector<std::string>& command)
        : session_(std::move(session)), number_(session_->start(command)) {}
    ~HeadProcess() override { session_->forget(number_); }
    bool read(const Sink& out, const Sink& err) override { return session_->read(number_, out, err); }
    void write(std::string_view bytes) override { session_->write(number_, bytes); }
    int exit_code() override { return session_->exit_code(number_); }

   private:
    const std::shared_ptr<Session> session_;
    const int number_;
  };
  return std::make_unique<HeadProcess>(session_, command);
}

}  // namespace adaptdl::ray
