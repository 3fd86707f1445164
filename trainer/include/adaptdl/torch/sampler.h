// Deals the samples of a data set to the replicas of a job, and re-deals what is left when their number changes.
//
// The total order. A pass over N samples has an order that depends on (seed, epoch, pass) and on nothing else: not on
// the platform, the replicas, or the version of LibTorch. Without shuffling it is 0, 1, ..., N-1. Position p of the
// order is dealt, from the start position s on, to rank (p - s) mod K of K replicas, so each replica reads positions s
// + rank, s + rank + K, ... After each has read m of them, exactly the positions s ... s + m*K - 1 are read.
//
// The sampler's promise. In a pass every sample is dealt exactly once, and at most K-1 of them once more, where needed
// to deal all replicas equally many. A pass interrupted when each replica had read m samples, and gone on with at index
// s + m*K on any number of replicas, keeps that promise as a whole, with the last K: nothing is lost, and what is
// repeated comes last. (With more replicas than samples, the same sample may be repeated several times, still at most
// K-1 in all.)
//
// An index counts the samples read since the start of the epoch, by all replicas: `index` / N is the pass, `index` mod
// N the position in its order.
//
// Threading: const functions may be called from several threads.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace adaptdl {

namespace internal {

// What a data set's size() says, a number or an optional one. Throws UsageError if it does not know its size.
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
  // Rank and number of replicas are those of this process (init_process_group, else the environment). Throws UsageError
  // if there are no samples.
  explicit ElasticSampler(std::size_t dataset_size, bool shuffle = true, std::uint64_t seed = 0);

  // The same for a data set that knows its size, which is all it takes of it.
  template <class Dataset>
  requires requires(const Dataset& dataset) { dataset.size(); }
  explicit ElasticSampler(const Dataset& dataset, bool shuffle = true, std::uint64_t seed = 0)
      : ElasticSampler(internal::size_of(dataset.size()), shuffle, seed) {}

  // Deals as for replica `rank` of `replicas` instead. Throws UsageError unless 0 <= rank < replicas.
  void set_replica(int rank, int replicas);

  // Goes to `epoch`, to deal from `index` on. Until the first call both are 0. Throws UsageError on a negative epoch.
  void set_epoch(int epoch, std::size_t index = 0);

  // The samples dealt to this replica until the end of the pass, in order; always size() of them.
  std::vector<std::size_t> indices() const;

  // How many samples each replica gets until the end of the pass: the remaining ones divided by the replicas, rounded
  // up.
  std::size_t size() const noexcept;

  // The order of the whole pass, before it is dealt.
  std::vector<std::size_t> order() const;

  // As given to the constructor, set_replica and set_epoch.
  std::size_t dataset_size() const noexcept { return dataset_size_; }
  bool shuffle() const noexcept { return shuffle_; }
  std::uint64_t seed() const noexcept { return seed_; }
  int rank() const noexcept { return rank_; }
  int replicas() const noexcept { return replicas_; }
  int epoch() const noexcept { return epoch_; }
  std::size_t index() const noexcept { return index_; }
  // The pass over the data that `index` is in.
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
