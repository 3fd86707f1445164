#include "adaptdl/torch/internal/prefetcher.h"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <string>

namespace prefetcher_test {

namespace {

using adaptdl::internal::Prefetcher;

}  // namespace

TEST_CASE("results are returned in order for any number of threads and slots") {
  for (const std::size_t workers : {1, 2, 7}) {
    for (const std::size_t slots : {1, 2, 5, 30}) {
      std::vector<std::size_t> results(slots);
      Prefetcher prefetcher(workers, slots, 500,
                            [&](std::size_t, std::size_t number) { results[number % slots] = number * number; });
      for (std::size_t number = 0; number < 500; ++number) {
        prefetcher.take([&](std::size_t slot) { CHECK(results[slot] == number * number); });
      }
    }
  }
}

TEST_CASE("each worker has its own index and runs one job at a time") {
  std::vector<std::atomic<int>> running(4);
  std::atomic<bool> shared = false;
  Prefetcher prefetcher(4, 8, 1000, [&](std::size_t worker, std::size_t) {
    if (running.at(worker)++ != 0) shared = true;
    --running[worker];
  });
  for (int i = 0; i < 1000; ++i) prefetcher.take([](std::size_t) {});
  CHECK(!shared);
}

TEST_CASE("a job's exception is rethrown by take(), and no further jobs start") {
  std::atomic<int> jobs = 0;
  {
    Prefetcher prefetcher(2, 4, 100, [&](std::size_t, std::size_t number) {
      ++jobs;
      if (number == 3) throw std::runtime_error("job 3");
    });
    for (int i = 0; i < 3; ++i) prefetcher.take([](std::size_t) {});
    // A caller that continues after the error does not get a slot without a result.
    for (int i = 0; i < 2; ++i) CHECK_THROWS_WITH(prefetcher.take([](std::size_t) {}), "job 3");
  }
  CHECK(jobs <= 7);
}

TEST_CASE("a prefetcher without jobs terminates immediately") {
  const Prefetcher prefetcher(3, 2, 0, [](std::size_t, std::size_t) {});
}

}  // namespace prefetcher_test
