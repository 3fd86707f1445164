// Deals the samples of a dataset to the replicas of a job, and deals the remaining samples again when the replicas
// change.
//
// Order: the order of a pass over N samples depends only on (seed, epoch, pass), not on the platform, the replicas, or
// the version of LibTorch. Without shuffling, it is 0, 1, ..., N-1. With K replicas and the start position s, position
// p of the order is dealt to rank (p - s) mod K, so each replica reads positions s + rank, s + rank + K, ... After each
// replica has read m positions, exactly the positions s ... s + m*K - 1 have been read.
//
// Guarantees: in a pass, every sample is dealt once, and at most K-1 of them a second time, to give all replicas the
// same number of samples. This also holds, with K as the final number of replicas, if the pass is interrupted when each
// replica has read m samples, and is resumed at index s + m*K on any number of replicas: no sample is lost, and
// repeated samples come last. (With more replicas than samples, a sample may be repeated several times, but there are
// at most K-1 repetitions.)
//
// An index counts the samples that all replicas have read since the start of the epoch: `index` / N is the pass, and
// `index` mod N is the position in its order.
//
// Threading: several threads may call const functions at the same time.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace adaptdl {

namespace internal {

// Returns the size of a dataset, which may be a number or an optional number. Throws UsageError if it is unknown.
std::size_t known_size(std::optional<std::size_t> size);
template <class Size>
std::size_t size_of(const Size& size) {
  if constexpr (std::convertible_to<Size, std::size_t>) {
    return known_size(static_cast<std::size_t>(size));
  } else {
    return known_size(size ? std::optional<std::size_t>(*size) : std::nullopt);
  }
}

}  // namespace internal

class ElasticSampler {
 public:
  // Uses this process's rank and number of replicas (from init_process_group or the environment). Throws UsageError if
  // there are no samples.
  explicit ElasticSampler(std::size_t dataset_size, bool shuffle = true, std::uint64_t seed = 0);

  // Same as above, for the samples of `dataset`, of which only the size is used.
  template <class Dataset>
  requires requires(const Dataset& dataset) { dataset.size(); }
  explicit ElasticSampler(const Dataset& dataset, bool shuffle = true, std::uint64_t seed = 0)
      : ElasticSampler(internal::size_of(dataset.size()), shuffle, seed) {}

  // From now on, deals samples for replica `rank` of `replicas`. Throws UsageError unless 0 <= rank < replicas.
  void set_replica(int rank, int replicas);

  // Moves to `index` in `epoch`, where dealing then continues. Both are initially 0. Throws UsageError if `epoch` is
  // negative.
  void set_epoch(int epoch, std::size_t index = 0);

  // Returns the size() samples that are dealt to this replica until the end of the pass, in order.
  std::vector<std::size_t> indices() const;

  // Returns how many samples each replica receives until the end of the pass: an equal share of the rest, rounded up.
  std::size_t size() const noexcept;

  // Returns the order of all samples in the pass, before they are dealt.
  std::vector<std::size_t> order() const;

  // Return the values given to the constructor, set_replica and set_epoch.
  std::size_t dataset_size() const noexcept { return dataset_size_; }
  bool shuffle() const noexcept { return shuffle_; }
  std::uint64_t seed() const noexcept { return seed_; }
  int rank() const noexcept { return rank_; }
  int replicas() const noexcept { return replicas_; }
  int epoch() const noexcept { return epoch_; }
  std::size_t index() const noexcept { return index_; }
  // Returns the pass over the data that contains `index`.
  std::size_t pass() const noexcept { return index_ / dataset_size_; }

 private:
  std::size_t dataset_size_;
  bool shuffle_;
  std::uint64_t seed_;
  int rank_;
  int replicas_;
  int epoch_ = 0;
  std::size_t index_ = 0;
};

}  // namespace adaptdl
