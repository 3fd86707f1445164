// MobileNetV2: Sandler et al., "Inverted Residuals and Linear Bottlenecks", https://arxiv.org/abs/1801.04381.
#include "layers.h"

namespace programs {

namespace {

void add_relu6(Sequential& layers, const Sequential& part) {
  append(layers, part);
  layers->push_back(torch::nn::ReLU6());
}

// Expands the channels, convolves each channel separately, and projects the result back.
Sequential inverted(std::int64_t in, std::int64_t out, std::int64_t expansion, std::int64_t stride) {
  const auto wide = in * expansion;
  Sequential body;
  if (expansion > 1) add_relu6(body, conv_norm(in, wide, {1}));
  add_relu6(body, conv_norm(wide, wide, {3, stride, /*groups=*/wide}));
  append(body, conv_norm(wide, out, {1}));
  return body;
}

}  // namespace

ImageModelPtr make_mobilenet_v2(std::int64_t classes) {
  struct Stage {
    std::int64_t expansion, channels, blocks, stride;
  };
  Sequential layers;
  add_relu6(layers, conv_norm(3, 32));
  std::int64_t channels = 32;
  // The first two strides are 1, because these images are small.
  for (const auto& stage : std::initializer_list<Stage>{
           {1, 16, 1, 1}, {6, 24, 2, 1}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}}) {
    for (std::int64_t i = 0; i < stage.blocks; ++i) {
      const auto stride = i == 0 ? stage.stride : 1;
      auto body = inverted(channels, stage.channels, stage.expansion, stride);
      if (stride == 1 && channels == stage.channels) {
        layers->push_back(Residual(ResidualImpl::Parts{.body = body, .relu = false}));
      } else {
        append(layers, body);
      }
      channels = stage.channels;
    }
  }
  add_relu6(layers, conv_norm(channels, 1280, {1}));
  append(layers, pooled_classifier(1280, classes));
  return chain(layers);
}

}  // namespace programs
