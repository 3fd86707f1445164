// The layers that several families of networks share.
#pragma once

#include <torch/torch.h>

#include "image_model.h"

namespace programs {

using torch::nn::Sequential;

struct ConvOptions {
  std::int64_t kernel = 3, stride = 1, groups = 1;
};

// Creates a convolution that keeps the image size (except for its stride). It has no bias, because a normalization
// follows.
torch::nn::Conv2d conv(std::int64_t in, std::int64_t out, ConvOptions options = {});
// Creates the same convolution, followed by a normalization.
Sequential conv_norm(std::int64_t in, std::int64_t out, ConvOptions options = {});

// Appends the layers in `part` to `whole`.
void append(Sequential& whole, const Sequential& part);

// Creates a mean over all pixels, followed by a linear layer.
Sequential pooled_classifier(std::int64_t channels, std::int64_t classes);

// Computes body(y) + shortcut(y) with y = before(x), and a ReLU of the sum if `relu`. If `before` is empty, y is x; if
// `shortcut` is empty, x is added instead.
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

// Creates a network that is a chain of layers.
ImageModelPtr chain(Sequential layers);

}  // namespace programs
