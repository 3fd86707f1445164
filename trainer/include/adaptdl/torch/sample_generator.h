// Random numbers for data sets: for augmentations, say. They do not depend on which thread fetches a sample and when,
// so a run that is interrupted and goes on draws the same ones as a run that is not. LibTorch's default generator is no
// good there: it belongs to the training thread.
#pragma once

#include <ATen/core/Generator.h>

#include <cstddef>
#include <cstdint>

namespace adaptdl {

// The generator for sample `index` of a data set: seeded, by each call, by the loader's seed, the epoch, the pass and
// `index`. To be called in a data set's get or get_batch: `torch::rand({2}, sample_generator(index))`. The same on any
// number of replicas. Valid until the next call in this thread. Outside a loader, seed, epoch and pass are 0.
at::Generator sample_generator(std::size_t index);

// The generator for the batch that this thread is fetching, where the index of a sample is not known, as in a
// transform: seeded when the fetch begins, by the loader's seed, the epoch, the pass and the batch's first sample. The
// same on as many replicas. Throws UsageError outside a loader.
at::Generator sample_generator();

namespace internal {

// That this thread is fetching a batch.
class FetchScope {
 public:
  FetchScope(std::uint64_t seed, int epoch, std::size_t pass, std::size_t first_sample);
  ~FetchScope();
  FetchScope(const FetchScope&) = delete;
  FetchScope& operator=(const FetchScope&) = delete;
};

}  // namespace internal

}  // namespace adaptdl
