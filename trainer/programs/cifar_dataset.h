// Color images of 32 x 32 pixels in ten classes: CIFAR-10 in its binary format
// (https://www.cs.toronto.edu/~kriz/cifar.html), or generated images if CIFAR-10 is not available.
#pragma once

#include <c10/util/ArrayRef.h>
#include <torch/data/example.h>
#include <torch/types.h>

#include <string>

namespace programs {

class CifarDataset {
 public:
  static constexpr std::int64_t kClasses = 10, kSide = 32;

  // Reads all DIRECTORY/data_batch_*.bin (part "train") or DIRECTORY/test_batch.bin ("test") into memory. A record is
  // one byte for the label, followed by 3072 bytes for the red, green and blue planes. Throws UsageError, which names
  // --data and the file, if there is no such file, and Error if a file is damaged.
  static CifarDataset read(const std::string& directory, const std::string& part);

  // Generates noisy shapes and textures, one kind per class, at random positions and angles, in random sizes and
  // colors. The result depends only on the arguments. 20,000 images take about a second.
  static CifarDataset generate(std::size_t samples, std::uint64_t seed);

  // Sets whether images are randomly shifted by up to 4 pixels and mirrored, with random numbers from
  // sample_generator(index) (default: no).
  CifarDataset& augment(bool yes = true) {
    augment_ = yes;
    return *this;
  }

  // Returns data: float [batch, 3, 32, 32], normalized with CIFAR-10's mean and standard deviation; target: int64
  // [batch].
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
