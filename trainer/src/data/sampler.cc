#include "adaptdl/torch/sampler.h"

#include <fmt/format.h>

#include <numeric>
#include <random>
#include <utility>

#include "adaptdl/error.h"
#include "base/counted.h"
#include "support/mix.h"
#include "support/replicas.h"

namespace adaptdl {

namespace {

// Draws a number below `bound`; all numbers are equally likely. std::uniform_int_distribution is not used, because its
// results differ between standard libraries.
std::size_t draw_below(std::size_t bound, std::mt19937_64& engine) {
  const std::uint64_t biased = (0 - static_cast<std::uint64_t>(bound)) % bound;  // 2^64 mod bound
  std::uint64_t drawn = engine();
  while (drawn < biased) drawn = engine();
  return drawn % bound;
}

}  // namespace

namespace internal {

std::size_t known_size(std::optional<std::size_t> size) {
  if (!size)
    throw UsageError(
        "the size of the dataset is unknown; data loaders and samplers require a known size and random access");
  return *size;
}

}  // namespace internal

ElasticSampler::ElasticSampler(std::size_t dataset_size, bool shuffle, std::uint64_t seed)
    : dataset_size_(dataset_size),
      shuffle_(shuffle),
      seed_(seed),
      rank_(internal::replica_rank()),
      replicas_(internal::num_replicas()) {
  if (dataset_size == 0) throw UsageError("the dataset is empty; it must have at least 1 sample");
}

void ElasticSampler::set_replica(int rank, int replicas) {
  if (rank < 0 || rank >= replicas) {
    throw UsageError(
        fmt::format("the rank must be from 0 to {} with {}, got {}", replicas - 1, counted(replicas, "replica"), rank));
  }
  rank_ = rank;
  replicas_ = replicas;
}

void ElasticSampler::set_epoch(int epoch, std::size_t index) {
  if (epoch < 0) throw UsageError(fmt::format("set_epoch({}): an epoch must not be negative", epoch));
  epoch_ = epoch;
  index_ = index;
}

std::vector<std::size_t> ElasticSampler::order() const {
  std::vector<std::size_t> order(dataset_size_);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (shuffle_) {
    std::mt19937_64 engine(internal::mix({seed_, static_cast<std::uint64_t>(epoch_), pass()}));
    for (std::size_t last = dataset_size_ - 1; last > 0; --last) {
      std::swap(order[last], order[draw_below(last + 1, engine)]);
    }
  }
  return order;
}

std::vector<std::size_t> ElasticSampler::indices() const {
  const auto all = order();
  const auto rank = static_cast<std::size_t>(rank_);
  std::vector<std::size_t> dealt;
  dealt.reserve(size());
  for (std::size_t at = index_ % dataset_size_ + rank; at < dataset_size_; at += static_cast<std::size_t>(replicas_)) {
    dealt.push_back(all[at]);
  }
  // Each rank that the last round does not reach receives a different sample from the front.
  if (dealt.size() < size()) dealt.push_back(all[rank % dataset_size_]);
  return dealt;
}

std::size_t ElasticSampler::size() const noexcept {
  const auto left = dataset_size_ - index_ % dataset_size_;
  const auto replicas = static_cast<std::size_t>(replicas_);
  return (left + replicas - 1) / replicas;
}

}  // namespace adaptdl
