// ResNet: He et al., "Deep Residual Learning for Image Recognition", https://arxiv.org/abs/1512.03385; with
// pre-activation: "Identity Mappings in Deep Residual Networks", https://arxiv.org/abs/1603.05027; SENet: Hu et al.,
// "Squeeze-and-Excitation Networks", https://arxiv.org/abs/1709.01507.
#include <vector>

#include "layers.h"

namespace programs {

namespace {

// Scales each channel by a gate computed from the means of all channels.
class SqueezeExciteImpl : public torch::nn::Module {
 public:
  explicit SqueezeExciteImpl(std::int64_t channels)
      : gate_(register_module(
            "gate", Sequential(torch::nn::AdaptiveAvgPool2d(1), conv(channels, channels / 16, {1}), torch::nn::ReLU(),
                               conv(channels / 16, channels, {1}), torch::nn::Sigmoid()))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x * gate_->forward(x); }

 private:
  Sequential gate_;
};
TORCH_MODULE(SqueezeExcite);

// The kind of a block. A `bottleneck` has a 3 x 3 convolution between two 1 x 1 convolutions; other blocks have two 3 x
// 3 convolutions.
struct Kind {
  bool bottleneck = false, preact = false, squeeze = false;
  std::int64_t expansion() const { return bottleneck ? 4 : 1; }
};

// Adds a convolution, followed by its normalization and ReLU or, with pre-activation, by the next convolution's
// normalization and ReLU. After the `last` convolution there is no ReLU and, with pre-activation, no normalization.
void add_conv(Sequential& body, const Kind& kind, std::int64_t in, std::int64_t out, ConvOptions options, bool last) {
  if (kind.preact) {
    body->push_back(conv(in, out, options));
    if (!last) append(body, Sequential(torch::nn::BatchNorm2d(out), torch::nn::ReLU()));
  } else {
    append(body, conv_norm(in, out, options));
    if (!last) body->push_back(torch::nn::ReLU());
  }
}

Residual block(const Kind& kind, std::int64_t in, std::int64_t width, std::int64_t stride) {
  const auto out = width * kind.expansion();
  ResidualImpl::Parts parts;
  parts.relu = !kind.preact;
  if (kind.preact) append(parts.before, Sequential(torch::nn::BatchNorm2d(in), torch::nn::ReLU()));
  if (kind.bottleneck) {
    add_conv(parts.body, kind, in, width, {1}, false);
    add_conv(parts.body, kind, width, width, {3, stride}, false);
    add_conv(parts.body, kind, width, out, {1}, true);
  } else {
    add_conv(parts.body, kind, in, width, {3, stride}, false);
    add_conv(parts.body, kind, width, width, {3}, true);
  }
  if (kind.squeeze) parts.body->push_back(SqueezeExcite(out));
  if (stride != 1 || in != out) {
    parts.shortcut->push_back(conv(in, out, {1, stride}));
    if (!kind.preact) parts.shortcut->push_back(torch::nn::BatchNorm2d(out));
  }
  return Residual(std::move(parts));
}

// `width`: number of channels in the first stage. The number doubles from stage to stage.
ImageModelPtr residual_net(const Kind& kind, std::int64_t width, const std::vector<int>& blocks, std::int64_t classes) {
  auto layers = kind.preact ? Sequential(conv(3, width)) : conv_norm(3, width);
  if (!kind.preact) layers->push_back(torch::nn::ReLU());
  std::int64_t channels = width;
  for (std::size_t stage = 0; stage < blocks.size(); ++stage, width *= 2) {
    for (int i = 0; i < blocks[stage]; ++i) {
      layers->push_back(block(kind, channels, width, stage > 0 && i == 0 ? 2 : 1));
      channels = width * kind.expansion();
    }
  }
  if (kind.preact) append(layers, Sequential(torch::nn::BatchNorm2d(channels), torch::nn::ReLU()));
  append(layers, pooled_classifier(channels, classes));
  return chain(layers);
}

ImageModelPtr of_depth(Kind kind, int depth, std::int64_t classes) {
  // The paper's small networks for CIFAR (section 4.2) have three narrow stages of (depth - 2) / 6 blocks.
  if (depth < 18 || depth == 20) return residual_net(kind, 16, std::vector<int>(3, (depth - 2) / 6), classes);
  kind.bottleneck = depth >= 50;
  return residual_net(kind, 64, depth == 18 ? std::vector{2, 2, 2, 2} : std::vector{3, 4, 6, 3}, classes);
}

}  // namespace

ImageModelPtr make_resnet(int depth, std::int64_t classes) { return of_depth({}, depth, classes); }
ImageModelPtr make_preact_resnet(int depth, std::int64_t classes) { return of_depth({.preact = true}, depth, classes); }
ImageModelPtr make_senet18(std::int64_t classes) { return of_depth({.squeeze = true}, 18, classes); }

}  // namespace programs
