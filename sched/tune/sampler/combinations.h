// The distinct combinations of parameters that the trials of a finite space can have, numbered from 0.
//
// A parameter that does not apply makes no difference, so there may be far fewer combinations than the product of the
// numbers of values. The combinations are counted without listing them, in time that grows with the number of values in
// conditions.
//
// Threading: an object must be used by one thread at a time, even for const functions, which share a cache.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tune/study/space.h"

namespace adaptdl::sched::tune {

class Combinations {
 public:
  // Covers the combinations that contain the values in `given`. Throws UsageError if a parameter has infinitely many
  // values or if there are more than 2^62 combinations. The space must outlive this object.
  Combinations(const Space& space, const Values& given);

  std::uint64_t size() const { return size_; }
  Values at(std::uint64_t index) const;  // REQUIRES index < size()

 private:
  // Values of a parameter that no condition distinguishes from each other.
  struct Group {
    std::uint64_t count = 0;
    nlohmann::json example;
    bool listed = false;  // a single value that a condition names
  };
  std::vector<Group> groups(std::size_t parameter) const;
  std::vector<std::uint64_t> positions_in_conditions(std::size_t parameter) const;
  // Parameters that depend on each other through conditions, by index, in the order of the space.
  using Family = std::vector<std::size_t>;
  std::vector<Family> families() const;
  // Counts the combinations of the family's parameters from `member` on, given the values of those before it.
  std::uint64_t count_from(const Family& family, std::size_t member, Values& values) const;
  std::uint64_t counted_from(const Family& family, std::size_t member, Values& values) const;
  void choose(const Family& family, std::uint64_t index, Values& values) const;

  const Space& space_;
  Values given_;
  std::vector<std::vector<std::uint64_t>> listed_;  // by parameter: sorted positions of the values that conditions name
  std::vector<std::pair<Family, std::uint64_t>> families_;  // each with its number of combinations
  // Results of count_from(), by parameter and by the earlier values on which the remaining conditions depend.
  mutable std::map<std::pair<std::size_t, Values>, std::uint64_t> counts_;
  std::uint64_t size_ = 1;
};

}  // namespace adaptdl::sched::tune
