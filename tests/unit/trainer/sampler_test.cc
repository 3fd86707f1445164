#include "adaptdl/torch/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "adaptdl/error.h"

namespace sampler_test {

namespace {

using adaptdl::ElasticSampler;
using adaptdl::UsageError;
using Samples = std::vector<std::size_t>;

ElasticSampler of_rank(ElasticSampler sampler, int rank, int replicas) {
  sampler.set_replica(rank, replicas);
  return sampler;
}

// Returns the samples that all replicas are dealt together, and checks that each replica gets the same number.
Samples dealt_to_all(const ElasticSampler& sampler, int replicas) {
  Samples all;
  for (int rank = 0; rank < replicas; ++rank) {
    const auto local = of_rank(sampler, rank, replicas);
    const auto samples = local.indices();
    REQUIRE(samples.size() == local.size());
    REQUIRE(local.size() == of_rank(sampler, 0, replicas).size());
    all.insert(all.end(), samples.begin(), samples.end());
  }
  return all;
}

// Checks that each of `samples` is dealt at least once, and that at most `replicas` - 1 samples are dealt in addition.
void check_promise(const Samples& dealt, const Samples& samples, int replicas) {
  std::map<std::size_t, int> times;
  for (const auto sample : dealt) ++times[sample];
  for (const auto sample : samples) REQUIRE(times[sample] >= 1);
  REQUIRE(dealt.size() >= samples.size());
  REQUIRE(dealt.size() - samples.size() < static_cast<std::size_t>(replicas));
}

}  // namespace

TEST_CASE("from any index, every sample is dealt, with fewer repeated samples than replicas") {
  for (const std::size_t size : {1, 2, 3, 5, 9, 15, 25, 64, 97}) {
    for (const bool shuffle : {false, true}) {
      for (int replicas = 1; replicas <= 8; ++replicas) {
        ElasticSampler sampler(size, shuffle, 11);
        for (std::size_t index = 0; index < 2 * size; index += 1 + size / 7) {
          CAPTURE(size);
          CAPTURE(replicas);
          CAPTURE(index);
          sampler.set_epoch(3, index);
          const auto order = sampler.order();
          check_promise(dealt_to_all(sampler, replicas),
                        Samples(order.begin() + static_cast<std::ptrdiff_t>(index % size), order.end()), replicas);
        }
      }
    }
  }
}

TEST_CASE("no sample is repeated more than once if there are at least as many samples as replicas") {
  for (const std::size_t size : {4, 5, 9, 23}) {
    const auto dealt = dealt_to_all(ElasticSampler(size, true), 4);
    for (std::size_t sample = 0; sample < size; ++sample) CHECK(std::count(dealt.begin(), dealt.end(), sample) <= 2);
  }
}

TEST_CASE("a pass redistributed to other numbers of replicas deals every sample, with fewer repeats than replicas") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    const std::size_t size = 1 + random() % 200;
    ElasticSampler sampler(size, true, random());
    const int epoch = static_cast<int>(random() % 100);
    Samples dealt;
    int replicas = 1;
    for (std::size_t index = 0; index < size;) {
      replicas = 1 + static_cast<int>(random() % 6);
      sampler.set_epoch(epoch, index);
      const auto rounds = of_rank(sampler, 0, replicas).size();
      // An interrupted run ends after a complete round before the last one.
      const auto done = random() % 3 == 0 ? rounds : random() % rounds;
      for (int rank = 0; rank < replicas; ++rank) {
        const auto local = of_rank(sampler, rank, replicas).indices();
        dealt.insert(dealt.end(), local.begin(), local.begin() + static_cast<std::ptrdiff_t>(done));
      }
      index += done * static_cast<std::size_t>(replicas);
    }
    check_promise(dealt, sampler.order(), replicas);
  }
}

TEST_CASE("samples are dealt to ranks in turn, so completed rounds are a prefix of the order") {
  ElasticSampler sampler(100, true, 1);
  sampler.set_epoch(2, 30);
  const auto order = sampler.order();
  std::array<Samples, 4> local;
  for (int rank = 0; rank < 4; ++rank) local[static_cast<std::size_t>(rank)] = of_rank(sampler, rank, 4).indices();
  for (std::size_t at = 0; at < 70; ++at) CHECK(local[at % 4][at / 4] == order[30 + at]);
}

TEST_CASE("the order for a seed, an epoch and a pass never changes") {
  // Computed by another program: a Fisher-Yates shuffle with std::mt19937_64, seeded by SplitMix64 of the three
  // numbers.
  ElasticSampler sampler(10);
  CHECK(sampler.order() == Samples{6, 2, 1, 4, 8, 0, 9, 5, 3, 7});
  sampler.set_epoch(1);
  CHECK(sampler.order() == Samples{1, 8, 9, 7, 0, 3, 5, 6, 2, 4});
  sampler.set_epoch(0, 10);
  CHECK(sampler.order() == Samples{7, 4, 6, 0, 1, 3, 2, 8, 5, 9});
  ElasticSampler seeded(10, true, 7);
  seeded.set_epoch(3, 25);
  CHECK(seeded.order() == Samples{6, 2, 0, 5, 7, 9, 3, 4, 1, 8});
  ElasticSampler large(100000, true, 1);
  large.set_epoch(2);
  const auto order = large.order();
  CHECK(Samples(order.begin(), order.begin() + 3) == Samples{48063, 59101, 77583});
  CHECK(Samples(order.end() - 3, order.end()) == Samples{92090, 10013, 11791});
}

TEST_CASE("the order depends on the seed, epoch and pass, but not on the index") {
  const auto order = [](std::uint64_t seed, int epoch, std::size_t index) {
    ElasticSampler sampler(50, true, seed);
    sampler.set_epoch(epoch, index);
    return sampler.order();
  };
  std::set<Samples> different;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (std::size_t pass = 0; pass < 3; ++pass) {
        different.insert(order(seed, epoch, 50 * pass));
        CHECK(order(seed, epoch, 50 * pass) == order(seed, epoch, 50 * pass + 49));
      }
    }
  }
  CHECK(different.size() == 27);
}

TEST_CASE("without shuffling, every pass follows the order of the dataset") {
  ElasticSampler sampler(4, false, 9);
  sampler.set_epoch(5, 8);
  CHECK(sampler.order() == Samples{0, 1, 2, 3});
}

TEST_CASE("every order is equally likely") {
  std::map<Samples, int> times;
  constexpr int kEpochs = 24000;
  ElasticSampler sampler(4);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    sampler.set_epoch(epoch);
    ++times[sampler.order()];
  }
  CHECK(times.size() == 24);
  double chi_square = 0;
  for (const auto& [order, count] : times) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  CHECK(chi_square < 49.7);  // the 99.9th percentile with 23 degrees of freedom
}

TEST_CASE("the rank and the number of replicas default to the environment") {
  setenv("ADAPTDL_NUM_REPLICAS", "5", 1);
  setenv("ADAPTDL_REPLICA_RANK", "3", 1);
  const ElasticSampler sampler(12, false);
  unsetenv("ADAPTDL_NUM_REPLICAS");
  unsetenv("ADAPTDL_REPLICA_RANK");
  CHECK(sampler.replicas() == 5);
  CHECK(sampler.indices() == Samples{3, 8, 3});
}

TEST_CASE("invalid arguments are rejected") {
  CHECK_THROWS_WITH_AS(ElasticSampler(0), "the dataset is empty; it must have at least 1 sample", UsageError);
  ElasticSampler sampler(3);
  CHECK_THROWS_AS(sampler.set_replica(2, 2), UsageError);
  CHECK_THROWS_AS(sampler.set_replica(-1, 2), UsageError);
  CHECK_THROWS_AS(sampler.set_epoch(-1), UsageError);
}

TEST_CASE("a sampler gets its size from the dataset") {
  struct Sized {
    std::optional<std::size_t> size() const { return samples; }
    std::optional<std::size_t> samples;
  };
  CHECK(ElasticSampler(std::vector<int>(7)).dataset_size() == 7);
  CHECK(ElasticSampler(Sized{5}, false).order() == ElasticSampler(5, false).order());
  CHECK_THROWS_AS(ElasticSampler(Sized{}), UsageError);
}

}  // namespace sampler_test
