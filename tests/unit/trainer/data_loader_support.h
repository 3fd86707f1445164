// Shared by the tests of data loaders: the samples of a loop, and a custom dataset.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "numbers.h"

namespace data_loader_support {

using testing::samples_of;
using Samples = std::vector<std::int64_t>;

template <class Loader>
Samples read_all(Loader& loader) {
  Samples samples;
  for (auto& batch : loader) {
    for (const auto sample : samples_of(batch)) samples.push_back(sample);
  }
  return samples;
}

// A custom dataset, which is not derived from LibTorch's classes and cannot be copied.
struct Words {
  Words() = default;
  Words(Words&&) = default;
  std::vector<std::string> get_batch(c10::ArrayRef<std::size_t> indices) const {
    std::vector<std::string> words;
    for (const auto index : indices) words.push_back("word" + std::to_string(index));
    return words;
  }
  std::size_t size() const { return 4; }
};

}  // namespace data_loader_support
