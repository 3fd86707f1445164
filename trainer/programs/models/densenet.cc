// DenseNet: Huang et al., "Densely Connected Convolutional Networks", https://arxiv.org/abs/1608.06993.
#include <utility>

#include "layers.h"

namespace programs {

namespace {

Sequential norm_relu_conv(std::int64_t in, std::int64_t out, std::int64_t kernel) {
  return Sequential(torch::nn::BatchNorm2d(in), torch::nn::ReLU(), conv(in, out, {kernel}));
}

// Appends new channels to the input's channels.
class DenseLayerImpl : public torch::nn::Module {
 public:
  DenseLayerImpl(std::int64_t in, std::int64_t growth) {
    append(body_, norm_relu_conv(in, 4 * growth, 1));
    append(body_, norm_relu_conv(4 * growth, growth, 3));
    register_module("body", body_);
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::cat({body_->forward(x), x}, 1); }

 private:
  Sequential body_;
};
TORCH_MODULE(DenseLayer);

}  // namespace

ImageModelPtr make_densenet121(std::int64_t classes) {
  constexpr std::int64_t kGrowth = 32;
  std::int64_t channels = 2 * kGrowth;
  Sequential layers(conv(3, channels));
  for (const int blocks : {6, 12, 24, 16}) {
    if (channels > 2 * kGrowth) {  // between two stages
      append(layers, norm_relu_conv(channels, channels / 2, 1));
      layers->push_back(torch::nn::AvgPool2d(2));
      channels /= 2;
    }
    for (int i = 0; i < blocks; ++i, channels += kGrowth) layers->push_back(DenseLayer(channels, kGrowth));
  }
  append(layers, Sequential(torch::nn::BatchNorm2d(channels), torch::nn::ReLU()));
  append(layers, pooled_classifier(channels, classes));
  return chain(layers);
}

}  // namespace programs
