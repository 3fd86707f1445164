// Tests the operator's work queue.
#include "operator/base/work_queue.h"

#include <doctest/doctest.h>

#include <future>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace operator_queue_test {

using adaptdl::sched::WorkQueue;
using namespace std::chrono_literals;

TEST_CASE("a key is processed by one worker at a time, and again if it is added in the meantime") {
  WorkQueue queue;
  const std::stop_token never;
  queue.add("x");
  queue.add("x");
  queue.add("y");
  CHECK(queue.take(never) == "x");
  queue.add("x");
  CHECK(queue.take(never) == "y");
  queue.done("y");
  queue.add("z");
  CHECK(queue.take(never) == "z");  // x is being processed
  queue.done("z");
  queue.done("x");
  CHECK(queue.take(never) == "x");
  queue.done("x");
  std::stop_source stop;
  stop.request_stop();
  queue.add("x");
  CHECK_FALSE(queue.take(stop.get_token()));
}

TEST_CASE("low-priority keys are taken last, and only once if they are added again") {
  using enum WorkQueue::Priority;
  WorkQueue queue;
  for (const char* key : {"low1", "promoted", "due", "low2"}) queue.add(key, kLow);
  queue.add("normal");
  queue.add("normal", kLow);
  queue.add("promoted");
  queue.add_at("due", WorkQueue::Clock::now());
  for (const char* key : {"normal", "promoted", "due", "low1", "low2"}) CHECK(queue.take({}) == key);
  // The keys are added while workers are processing them.
  queue.add("low1", kLow);
  queue.add("low2", kLow);
  queue.add("low2");
  queue.done("low1");
  queue.done("low2");
  CHECK(queue.take({}) == "low2");
  CHECK(queue.take({}) == "low1");
  std::stop_source stop;
  auto taken = std::async(std::launch::async, [&] { return queue.take(stop.get_token()); });
  queue.add("low3", kLow);
  CHECK(taken.get() == "low3");
}

TEST_CASE("a key that is already due is taken immediately, even by a waiting worker") {
  WorkQueue queue;
  for (int i = 0; i < 20; ++i) {
    auto taken = std::async(std::launch::async, [&] { return queue.take({}); });
    taken.wait_for(1ms);  // in some iterations, the worker is waiting by then
    queue.add_at("x", WorkQueue::Clock::now() - 1ms);
    const bool in_time = taken.wait_for(10s) == std::future_status::ready;
    if (!in_time) queue.add("y");  // unblocks the worker
    REQUIRE(in_time);
    CHECK(taken.get() == "x");
    queue.done("x");
  }
}

TEST_CASE("a delayed key is taken by a free worker while the others are busy") {
  WorkQueue queue;
  std::stop_source stop;
  std::promise<void> go_on;
  const std::shared_future<void> released = go_on.get_future().share();
  std::promise<void> later;
  std::vector<std::jthread> workers;
  for (int i = 0; i < 3; ++i) {
    workers.emplace_back([&, token = stop.get_token()] {
      while (const auto key = queue.take(token)) {
        if (*key == "later") {
          later.set_value();
        } else {
          released.wait();
        }
        queue.done(*key);
      }
    });
  }
  queue.add_at("later", WorkQueue::Clock::now() + 30ms);
  queue.add("busy1");
  queue.add("busy2");
  const bool in_time = later.get_future().wait_for(10s) == std::future_status::ready;
  go_on.set_value();
  stop.request_stop();
  CHECK(in_time);
}

TEST_CASE("an earlier due time replaces a later one, and a stop request ends a wait") {
  WorkQueue queue;
  queue.add_at("x", WorkQueue::Clock::now() + 1h);
  queue.add_at("x", WorkQueue::Clock::now());
  queue.add_at("x", WorkQueue::Clock::now() + 2h);
  CHECK(queue.take({}) == "x");
  std::stop_source stop;
  auto taken = std::async(std::launch::async, [&] { return queue.take(stop.get_token()); });
  stop.request_stop();
  CHECK_FALSE(taken.get());
}

}  // namespace operator_queue_test
