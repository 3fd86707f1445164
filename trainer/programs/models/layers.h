// What the families of nets have in common.
#pragma once

#include <torch/torch.h>

#include "image_model.h"

namespace programs {

using torch::nn::Sequential;

struct ConvOptions {
  std::int64_t kernel = 3, stride = 1, groups = 1;
};

// A convolution that keeps the image's size (but for its stride) and has no bias, since a normalization follows.
torch::nn::Conv2d conv(std::int64_t in, std::int64_t out, ConvOptions options = {});
// The same, and that normalization.
Sequential conv_norm(std::int64_t in, std::int64_t out, ConvOptions options = {});

// Appends the layers of `part` to `whole`.
void append(Sequential& whole, const Sequential& part);

// Mean over all pixels, then a linear layer.
Sequential pooled_classifier(std::int64_t channels, std::int64_t classes);

// before(x), body(x) + shortcut(x), and a ReLU behind the sum or not. An empty `shortcut` is x itself, from before
// `before`.
class ResidualImpl : public torch::nn::Module {
 public:
  struct Parts {
    Sequential before = {}, body = {}, shortcut = {};
    bool relu = true;
  };
  explicit ResidualImpl(Parts parts);
  torch::Tensor forward(torch::Tensor x);

 private:
  Parts parts_;
};
TORCH_MODULE(Residual);

// A net that is a chain of layers.
ImageModelPtr chain(Sequential layers);

}  // namespace programs
