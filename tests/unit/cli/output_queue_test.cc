#include "terminal/output_queue.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <utility>

#include "terminal/notice_lines.h"

namespace output_queue_test {

using adaptdl::cli::OutputQueue;

namespace {

// Replaces a standard descriptor with a pipe while a test runs.
struct Redirected {
  explicit Redirected(int descriptor = STDOUT_FILENO) : fd(descriptor) {
    ::signal(SIGPIPE, SIG_IGN);
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    read_end = ends[0];
    saved = ::dup(fd);
    ::dup2(ends[1], fd);
    ::close(ends[1]);
  }
  ~Redirected() {
    restore();
    if (read_end >= 0) ::close(read_end);
  }
  void restore() {
    if (saved < 0) return;
    ::dup2(saved, fd);
    ::close(std::exchange(saved, -1));
  }
  std::string take(std::size_t size) {
    std::string text(size, '\0');
    text.resize(static_cast<std::size_t>(::read(read_end, text.data(), size)));
    return text;
  }
  // Returns everything that is read until `write` has returned.
  std::string read_while(const std::function<void()>& write) {
    std::string all;
    std::thread reader([&] {
      for (std::string text; !(text = take(65536)).empty();) all += text;
    });
    write();
    restore();
    reader.join();
    return all;
  }
  int fd, read_end = -1, saved = -1;
};

struct RedirectedErrors : Redirected {
  RedirectedErrors() : Redirected(STDERR_FILENO) {}
};

struct RedirectedToTerminal : Redirected {
  RedirectedToTerminal() {
    int leader = -1, follower = -1;
    REQUIRE(::openpty(&leader, &follower, nullptr, nullptr, nullptr) == 0);
    termios mode{};
    ::tcgetattr(follower, &mode);
    ::cfmakeraw(&mode);
    ::tcsetattr(follower, TCSANOW, &mode);
    ::dup2(follower, fd);
    ::close(follower);
    ::close(std::exchange(read_end, leader));
  }
};

}  // namespace

TEST_CASE_TEMPLATE("a stalled reader delays the output but does not block the writer", To, Redirected,
                   RedirectedToTerminal) {
  To to;
  OutputQueue queue;
  const std::size_t size = std::size_t{1} << 20;  // more than a pipe or a terminal holds
  queue.put(STDOUT_FILENO, std::string(size, 'x') + "end");
  queue.write_some();
  CHECK_FALSE(queue.empty());
  CHECK(queue.fd() == STDOUT_FILENO);
  std::string all;
  while (all.size() < size + 3) {
    queue.write_some();
    all += to.take(65536);
  }
  CHECK(all == std::string(size, 'x') + "end");
  CHECK(queue.empty());
  CHECK(queue.fd() == -1);
}

TEST_CASE_FIXTURE(Redirected, "the queue is full at its limit and has room again once drained") {
  OutputQueue queue;
  CHECK_FALSE(queue.full());
  queue.put(STDOUT_FILENO, std::string(OutputQueue::kFull, 'x'));
  CHECK(queue.full());
  std::size_t read = 0;
  while (read < OutputQueue::kFull) {
    queue.write_some();
    read += take(65536).size();
  }
  CHECK_FALSE(queue.full());
}

TEST_CASE_FIXTURE(Redirected, "text written to two streams keeps its order") {
  OutputQueue queue;
  const int other = ::dup(STDOUT_FILENO);
  queue.put(STDOUT_FILENO, "a");
  queue.put(other, "b");
  queue.put(STDOUT_FILENO, "c");
  queue.write_all();
  CHECK(take(10) == "abc");
  ::close(other);
}

TEST_CASE_FIXTURE(Redirected, "a closed reader is detected, and further output to it is dropped") {
  OutputQueue queue;
  ::close(read_end);
  read_end = -1;
  queue.put(STDOUT_FILENO, std::string(100'000, 'x'));
  CHECK_FALSE(queue.refused(STDOUT_FILENO));
  queue.write_some();
  CHECK(queue.refused(STDOUT_FILENO));
  CHECK(queue.empty());
  queue.put(STDOUT_FILENO, "more");
  CHECK(queue.empty());
}

TEST_CASE_FIXTURE(RedirectedErrors,
                  "if standard error is not being read, notices are dropped and counted until keep_all() is called") {
  adaptdl::cli::NoticeLines notices;
  const std::string large(OutputQueue::kFull + (std::size_t{1} << 20),
                          'x');  // more than a pipe and a full queue hold
  notices.put(large);
  notices.put("lost");
  notices.put("lost");
  SUBCASE("writing of notices resumes once the queue has room") {
    const std::string all = read_while([&] {
      notices.write_all();
      notices.put("next");
      notices.write_all();
    });
    CHECK(all == "adaptdl: " + large +
                     "\nadaptdl: 2 notices dropped because standard error was not being read\nadaptdl: next\n");
  }
  SUBCASE("notices after keep_all are kept") {
    notices.keep_all();
    notices.put("last");
    const std::string all = read_while([&] { notices.write_all(); });
    CHECK(all.ends_with("adaptdl: 2 notices dropped because standard error was not being read\nadaptdl: last\n"));
  }
}

}  // namespace output_queue_test
