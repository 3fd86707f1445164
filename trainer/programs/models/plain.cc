// Networks without shortcuts. LeNet: LeCun et al., "Gradient-based learning applied to document recognition", 1998,
// with ReLU and max pooling; VGG: Simonyan and Zisserman, https://arxiv.org/abs/1409.1556, with batch normalization.
#include "layers.h"

namespace programs {

ImageModelPtr make_lenet(std::int64_t classes) {
  using namespace torch::nn;
  return chain(Sequential(Conv2d(3, 6, 5), ReLU(), MaxPool2d(2), Conv2d(6, 16, 5), ReLU(), MaxPool2d(2), Flatten(),
                          Linear(16 * 5 * 5, 120), ReLU(), Linear(120, 84), ReLU(), Linear(84, classes)));
}

ImageModelPtr make_vgg16(std::int64_t classes) {
  constexpr std::int64_t kPool = 0;
  Sequential layers;
  std::int64_t channels = 3;
  for (const std::int64_t width : {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0}) {
    if (width == kPool) {
      layers->push_back(torch::nn::MaxPool2d(2));
      continue;
    }
    append(layers, conv_norm(channels, width));
    layers->push_back(torch::nn::ReLU());
    channels = width;
  }
  append(layers, pooled_classifier(channels, classes));
  return chain(layers);
}

}  // namespace programs
