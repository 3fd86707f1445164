// Random numbers that are the same with every standard library and on every processor: SplitMix64 (Steele, Lea, Flood,
// "Fast Splittable Pseudorandom Number Generators", 2014).
#pragma once

#include <cstdint>
#include <initializer_list>

namespace adaptdl::sched::tune {

class RandomBits {
 public:
  // Keys that differ in even a single bit yield unrelated sequences.
  explicit RandomBits(std::initializer_list<std::uint64_t> keys) {
    for (const std::uint64_t key : keys) {
      state_ += key;
      state_ = next();
    }
  }

  std::uint64_t next() {
    std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }

  // Returns a number in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_ = 0;
};

}  // namespace adaptdl::sched::tune
