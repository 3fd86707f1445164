// Datasets for tests, whose samples identify themselves.
#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/example.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace testing {

// Sample i is the scalar i, with target 2i.
class Numbers : public torch::data::datasets::Dataset<Numbers> {
 public:
  explicit Numbers(std::size_t size) : size_(size) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto number = static_cast<std::int64_t>(index);
    return {torch::tensor(number), torch::tensor(2 * number)};
  }
  torch::optional<std::size_t> size() const override { return size_; }

 private:
  std::size_t size_;
};

// Returns the samples in a batch.
inline std::vector<std::int64_t> samples_of(const torch::data::Example<>& batch) {
  const auto* const first = batch.data.data_ptr<std::int64_t>();
  return {first, first + batch.data.numel()};
}

}  // namespace testing
