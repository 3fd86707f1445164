// The parts of NSGA-II that depend only on the two objectives of each individual, both of which are minimized:
// dominance, crowding, survival, and the choice of parents.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace adaptdl::sched::nsga2 {

using Objectives = std::array<double, 2>;

// Uniform random numbers that are the same with every standard library. SplitMix64 (Steele et al., 2014) is fast enough
// for the hundred million numbers that a search draws.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }
  // Returns a number in [0, count). REQUIRES 1 <= count < 2^32.
  std::uint32_t below(std::uint32_t count) { return static_cast<std::uint32_t>(((bits() >> 32) * count) >> 32); }
  bool happens(double probability) { return static_cast<double>(bits() >> 11) * 0x1p-53 < probability; }
  template <typename Element>
  void shuffle(std::vector<Element>& elements) {
    for (std::size_t left = elements.size(); left > 1; --left)
      std::swap(elements[left - 1], elements[below(static_cast<std::uint32_t>(left))]);
  }

 private:
  std::uint64_t state_;
};

bool dominates(const Objectives& a, const Objectives& b);

struct Standing {
  std::size_t individual = 0;
  std::size_t front = 0;  // 0 if no other individual dominates it
  double crowding = 0;    // distance between its neighbors in its front; infinite at the ends
};

// Returns the `count` survivors, or all individuals if there are fewer: whole fronts, then the least crowded
// individuals of the next front.
std::vector<Standing> survivors(const std::vector<Objectives>& objectives, std::size_t count, Random& random);

// Returns the indices of the winners of `count` binary tournaments. All individuals take part in about the same number
// of tournaments. If one individual dominates the other, it wins. If neither does, the less crowded one wins; if they
// are equally crowded, the winner is random. `objectives` and `crowding` have one element per individual.
std::vector<std::size_t> tournaments(const std::vector<Objectives>& objectives, const std::vector<double>& crowding,
                                     std::size_t count, Random& random);

}  // namespace adaptdl::sched::nsga2
