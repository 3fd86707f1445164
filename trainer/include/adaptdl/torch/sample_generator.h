// Random numbers for datasets, for example for augmentation. The numbers do not depend on which thread fetches a
// sample, or when, so an interrupted run draws the same numbers as an uninterrupted one. LibTorch's default generator
// is unsuitable for this, because it belongs to the training thread.
#pragma once

#include <ATen/core/Generator.h>

#include <cstddef>
#include <cstdint>

namespace adaptdl {

// Returns the generator for sample `index` of a dataset. Each call seeds the generator with the loader's seed, the
// epoch, the pass (each 0 outside a loader) and `index`, so the numbers are the same on any number of replicas. Call
// this function in a dataset's get or get_batch: `torch::rand({2}, sample_generator(index))`. The generator is valid
// until the next call in this thread.
at::Generator sample_generator(std::size_t index);

// Returns the generator for the batch that this thread is fetching, for code that does not know the index of a sample,
// such as a transform. The generator is seeded when the fetch begins, with the loader's seed, the epoch, the pass and
// the batch's first sample, so the numbers are the same only on the same number of replicas. Throws UsageError outside
// a loader.
at::Generator sample_generator();

namespace internal {

// Marks this thread as fetching a batch while the object exists.
class FetchScope {
 public:
  FetchScope(std::uint64_t seed, int epoch, std::size_t pass, std::size_t first_sample);
  ~FetchScope();
  FetchScope(const FetchScope&) = delete;
  FetchScope& operator=(const FetchScope&) = delete;
};

}  // namespace internal

}  // namespace adaptdl
