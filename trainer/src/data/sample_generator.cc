#include "adaptdl/torch/sample_generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <optional>

#include "adaptdl/error.h"
#include "support/mix.h"

namespace adaptdl {

namespace {

// The first number mixed into a seed. It makes seeds for different purposes differ.
enum Purpose : std::uint64_t { kSample = 1, kBatch = 2 };

struct Fetch {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t pass = 0;
  std::optional<at::Generator> batch;  // created on first use
  std::uint64_t batch_seed = 0;
  bool running = false;
};

thread_local Fetch fetch;

}  // namespace

at::Generator sample_generator(std::size_t index) {
  thread_local auto generator = at::detail::createCPUGenerator();
  generator.set_current_seed(internal::mix({kSample, fetch.seed, fetch.epoch, fetch.pass, index}));
  return generator;
}

at::Generator sample_generator() {
  if (!fetch.running) {
    throw UsageError(
        "sample_generator() can be called only while a data loader fetches a batch; elsewhere, use "
        "sample_generator(index)");
  }
  if (!fetch.batch) fetch.batch = at::detail::createCPUGenerator(fetch.batch_seed);
  return *fetch.batch;
}

namespace internal {

FetchScope::FetchScope(std::uint64_t seed, int epoch, std::size_t pass, std::size_t first_sample) {
  fetch = {.seed = seed, .epoch = static_cast<std::uint64_t>(epoch), .pass = pass};
  fetch.batch_seed = mix({kBatch, fetch.seed, fetch.epoch, fetch.pass, first_sample});
  fetch.running = true;
}

FetchScope::~FetchScope() { fetch = {}; }

}  // namespace internal

}  // namespace adaptdl
