// Images of 32 x 32 pixels in colour, in ten classes: CIFAR-10 in its binary format
// (https://www.cs.toronto.edu/~kriz/cifar.html), or generated images where that is not available.
#pragma once

#include <c10/util/ArrayRef.h>
#include <torch/data/example.h>
#include <torch/types.h>

#include <string>

namespace programs {

class CifarDataset {
 public:
  static constexpr std::int64_t kClasses = 10, kSide = 32;

  // Reads all DIRECTORY/data_batch_*.bin (part "train") or DIRECTORY/test_batch.bin ("test") into memory. A record has
  // one byte, the label, and then 3072, the planes of red, green and blue. Throws UsageError, which names --data and
  // the file, if there is none, and Error if one is damaged.
  static CifarDataset read(const std::string& directory, const std::string& part);

  // Generates noisy shapes and textures, one kind per class, at random places and angles, in random sizes and colours.
  // The result depends only on the arguments. 20,000 images take about a second.
  static CifarDataset generate(std::size_t samples, std::uint64_t seed);

  // Sets whether images are shifted by up to 4 pixels and mirrored at random, by sample_generator(index). Default: no.
  CifarDataset& augment(bool yes = true) {
    augment_ = yes;
    return *this;
  }

  // Returns data: float [batch, 3, 32, 32], normalized by the mean and deviation of CIFAR-10; target: int64 [batch].
  torch::data::Example<> get_batch(c10::ArrayRef<std::size_t> indices) const;
  std::size_t size() const { return static_cast<std::size_t>(labels_.size(0)); }

  const torch::Tensor& images() const { return images_; }  // bytes, [count, 3, 32, 32]
  const torch::Tensor& labels() const { return labels_; }  // int64, [count]

 private:
  CifarDataset(torch::Tensor images, torch::Tensor labels);

  torch::Tensor images_;
  torch::Tensor labels_;
  bool augment_ = false;
};

}  // namespace programs
