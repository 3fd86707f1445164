// The different combinations of parameters that trials of a finite space can have, numbered from 0.
//
// A parameter that does not apply makes no difference, so there may be far fewer than the product of the numbers of
// values. They are counted, not listed: the time grows with the number of values that
// conditions name.
//
// Threading: used by one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tune/space.h"

namespace adaptdl::sched::tune {

class Combinations {
 public:
  // Those that have the values of `given`. Throws UsageError if a parameter has infinitely many values, or if there are
  // more than 2^62 combinations. The space must outlive this.
  Combinations(const Space& space, const Values& given);

  std::uint64_t size() const { return size_; }
  Values at(std::uint64_t index) const;  // REQUIRES index < size()

 private:
  // Values of a parameter among which no condition distinguishes.
  struct Group {
    std::uint64_t count = 0;
    nlohmann::json example;
    bool listed = false;  // a single one, which conditions name
  };
  std::vector<Group> groups(std::size_t parameter) const;
  std::vector<std::uint64_t> positions_in_conditions(std::size_t parameter) const;
  // Parameters that depend on each other, by index, in the order of the space.
  using Family = std::vector<std::size_t>;
  std::vector<Family> families() const;
  // How many combinations of a family there are from one of its members on, beside the values before it.
  std::uint64_t count_from(const Family& family, std::size_t member, Values& values) const;
  std::uint64_t counted_from(const Family& family, std::size_t member, Values& values) const;
  void choose(const Family& family, std::uint64_t index, Values& values) const;

  const Space& space_;
  Values given_;
  std::vector<std::vector<std::uint64_t>>
      listed_;  // by parameter: positions of the values that conditions name, sorted
  std::vector<std::pair<Family, std::uint64_t>> families_;  // with how many combinations each has
  // What count_from() has counted, by the parameter and those values before it that its family's conditions look at.
  mutable std::map<std::pair<std::size_t, Values>, std::uint64_t> counts_;
  std::uint64_t size_ = 1;
};

}  // namespace adaptdl::sched::tune
