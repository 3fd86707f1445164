#include "layers.h"

#include <utility>

namespace programs {

namespace {

class Chain : public ImageModel {
 public:
  explicit Chain(Sequential layers) : layers_(register_module("layers", std::move(layers))) {}
  torch::Tensor forward(torch::Tensor images) override { return layers_->forward(std::move(images)); }

 private:
  Sequential layers_;
};

}  // namespace

torch::nn::Conv2d conv(std::int64_t in, std::int64_t out, ConvOptions options) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, options.kernel)
                               .stride(options.stride)
                               .padding(options.kernel / 2)
                               .groups(options.groups)
                               .bias(false));
}

Sequential conv_norm(std::int64_t in, std::int64_t out, ConvOptions options) {
  return Sequential(conv(in, out, options), torch::nn::BatchNorm2d(out));
}

void append(Sequential& whole, const Sequential& part) {
  for (const auto& layer : *part) whole->push_back(layer);
}

Sequential pooled_classifier(std::int64_t channels, std::int64_t classes) {
  return Sequential(torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten(), torch::nn::Linear(channels, classes));
}

ResidualImpl::ResidualImpl(Parts parts) : parts_(std::move(parts)) {
  register_module("before", parts_.before);
  register_module("body", parts_.body);
  register_module("shortcut", parts_.shortcut);
}

torch::Tensor ResidualImpl::forward(torch::Tensor x) {
  const auto in = parts_.before->is_empty() ? x : parts_.before->forward(x);
  const auto sum = parts_.body->forward(in) + (parts_.shortcut->is_empty() ? x : parts_.shortcut->forward(in));
  return parts_.relu ? torch::relu(sum) : sum;
}

ImageModelPtr chain(Sequential layers) { return std::make_shared<Chain>(std::move(layers)); }

}  // namespace programs
