#include "adaptdl/log.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <thread>
#include <vector>

#include "process_support.h"

namespace log_test {

using namespace adaptdl;
using adaptdl::testing::Process;

TEST_CASE("info and warning messages are single prefixed lines on standard error") {
  Process process(STDERR_FILENO, [] {
    log::info("started");
    log::warn("slow\ndisk");
    log::info("\x1b[2J\u202e");
    return 0;
  });
  CHECK(process.rest() == "adaptdl: started\nadaptdl: warning: slow disk\nadaptdl: \\x1b[2J\\u202e\n");
}

TEST_CASE("ADAPTDL_LOG=warning suppresses info messages") {
  Process process(STDERR_FILENO, [] {
    ::setenv("ADAPTDL_LOG", "warning", 1);
    log::info("started");
    log::warn("slow");
    return 0;
  });
  CHECK(process.rest() == "adaptdl: warning: slow\n");
}

TEST_CASE("lines of concurrent threads do not interleave") {
  Process process(STDERR_FILENO, [] {
    std::vector<std::thread> threads;
    for (char letter = 'a'; letter < 'e'; ++letter)
      threads.emplace_back([letter] {
        for (int i = 0; i < 200; ++i) log::info(std::string(300, letter));
      });
    for (std::thread& thread : threads) thread.join();
    return 0;
  });
  std::istringstream lines(process.rest());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    REQUIRE(line.size() == 309);
    CHECK(std::count(line.begin() + 9, line.end(), line[9]) == 300);
  }
  CHECK(count == 800);
}

}  // namespace log_test
