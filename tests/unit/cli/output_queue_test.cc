#include "terminal/output_queue.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace output_queue_test {

using adaptdl::cli::OutputQueue;

namespace {

// A pipe in place of standard output while a test runs.
struct Redirected {
  Redirected() {
    ::signal(SIGPIPE, SIG_IGN);
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    read_end = ends[0];
    saved = ::dup(STDOUT_FILENO);
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[1]);
  }
  ~Redirected() {
    ::dup2(saved, STDOUT_FILENO);
    ::close(saved);
    if (read_end >= 0) ::close(read_end);
  }
  std::string take(std::size_t size) {
    std::string text(size, '\0');
    text.resize(static_cast<std::size_t>(::read(read_end, text.data(), size)));
    return text;
  }
  int read_end = -1, saved = -1;
};

}  // namespace

TEST_CASE_FIXTURE(Redirected, "a reader that stops holds up the text, not the writer") {
  OutputQueue queue;
  const std::size_t size = std::size_t{1} << 20;  // more than a pipe takes
  queue.put(STDOUT_FILENO, std::string(size, 'x') + "end");
  queue.write_some();
  CHECK_FALSE(queue.empty());
  CHECK(queue.fd() == STDOUT_FILENO);
  std::string all;
  while (all.size() < size + 3) {
    queue.write_some();
    all += take(65536);
  }
  CHECK(all == std::string(size, 'x') + "end");
  CHECK(queue.empty());
  CHECK(queue.fd() == -1);
}

TEST_CASE_FIXTURE(Redirected, "it is full when much waits, and takes more when that is gone") {
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

TEST_CASE_FIXTURE(Redirected, "text of two streams keeps its order") {
  OutputQueue queue;
  const int other = ::dup(STDOUT_FILENO);
  queue.put(STDOUT_FILENO, "a");
  queue.put(other, "b");
  queue.put(STDOUT_FILENO, "c");
  queue.write_all();
  CHECK(take(10) == "abc");
  ::close(other);
}

TEST_CASE_FIXTURE(Redirected, "a reader that went away is noticed, and its text dropped") {
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

}  // namespace output_queue_test
