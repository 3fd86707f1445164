// Data for recommender systems (which users chose which items), and the datasets on which `ncf` trains and tests.
#pragma once

#include <c10/util/ArrayRef.h>
#include <torch/data/example.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace programs {

// Users and items are numbered from 0. Each user's latest choice is held out for the test.
struct Interactions {
  std::int64_t users = 0, items = 0;
  std::vector<std::int64_t> user, item;     // the choices to train on, in the order of the file
  std::vector<std::int64_t> held_out;       // one item per user
  std::unordered_set<std::int64_t> chosen;  // user * items + item of all choices, including the held-out ones
  bool has(std::int64_t u, std::int64_t i) const { return chosen.contains(u * items + i); }

  // Reads lines of user, item, rating and time, separated by "::" (MovieLens' ratings.dat) or a tab (*.rating). Every
  // rating is treated as a choice. Users with a single choice are left out. Throws UsageError, which names --data and
  // the file, if the file cannot be read, and Error, which names the line, if a line is invalid.
  static Interactions read(const std::string& path);

  // Generates 800 users with 25 choices each from 400 items, based on tastes in 6 dimensions.
  static Interactions generate(std::uint64_t seed);
};

// The training data: each choice, with `negatives` items that the user did not choose. These items are drawn again in
// each pass, with random numbers from sample_generator(index).
class RatedPairs {
 public:
  RatedPairs(std::shared_ptr<const Interactions> interactions, std::int64_t negatives)
      : interactions_(std::move(interactions)), negatives_(negatives) {}
  // Returns data: int64 [batch, 2], user and item; target: float [batch], 1 for a choice and 0 otherwise.
  torch::data::Example<> get_batch(c10::ArrayRef<std::size_t> indices) const;
  std::size_t size() const { return interactions_->user.size() * static_cast<std::size_t>(negatives_ + 1); }

 private:
  std::shared_ptr<const Interactions> interactions_;
  std::int64_t negatives_;
};

// The test data: for each user, the held-out item followed by 99 items that the user did not choose. The items are
// always the same.
class RankedItems {
 public:
  static constexpr std::int64_t kCandidates = 100;
  explicit RankedItems(std::shared_ptr<const Interactions> interactions) : interactions_(std::move(interactions)) {}
  // Returns int64 [batch, 100, 2], users and items.
  torch::Tensor get_batch(c10::ArrayRef<std::size_t> users) const;
  std::size_t size() const { return static_cast<std::size_t>(interactions_->users); }

 private:
  std::shared_ptr<const Interactions> interactions_;
};

}  // namespace programs
