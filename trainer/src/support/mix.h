// Combines several numbers into a seed.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace adaptdl::internal {

// Mixes `values` into one seed with the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom
// Number Generators", 2014): values that differ in one bit result in unrelated seeds. The function must never change,
// because the order of samples and the random numbers of a resumed run depend on it.
constexpr std::uint64_t mix(std::initializer_list<std::uint64_t> values) {
  std::uint64_t state = 0;
  for (const auto value : values) {
    state += value + 0x9e3779b97f4a7c15;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
    state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
    state ^= state >> 31;
  }
  return state;
}

}  // namespace adaptdl::internal
