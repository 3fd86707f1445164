// Images and labels in IDX, the file format of MNIST (http://yann.lecun.com/exdb/mnist/) and similar datasets.
#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/example.h>
#include <torch/types.h>

#include <string>

namespace programs {

class IdxDataset : public torch::data::datasets::Dataset<IdxDataset> {
 public:
  // Reads DIRECTORY/{train,t10k}-{images-idx3,labels-idx1}-ubyte into memory. `part` is "train" or "t10k". Throws
  // adaptdl::Error, which names the file, if a file is missing, truncated or not in IDX format.
  IdxDataset(const std::string& directory, const std::string& part);

  // Returns data: float [1, height, width] in [0, 1]; target: int64 scalar.
  torch::data::Example<> get(std::size_t index) override;
  torch::optional<std::size_t> size() const override { return static_cast<std::size_t>(images_.size(0)); }

  const torch::Tensor& images() const { return images_; }  // [count, 1, height, width]

 private:
  torch::Tensor images_;
  torch::Tensor labels_;
};

}  // namespace programs
