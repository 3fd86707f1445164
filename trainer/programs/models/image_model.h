// The networks for images of 32 x 32 pixels that `cifar` can train, one family per file. Each network follows the paper
// named in its file, in the usual form for CIFAR: without a strided stem, which would lose most of such a small image.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

namespace programs {

struct ImageModel : torch::nn::Module {
  // `images`: float [batch, 3, 32, 32]. Returns float [batch, classes], the logits.
  virtual torch::Tensor forward(torch::Tensor images) = 0;
};
using ImageModelPtr = std::shared_ptr<ImageModel>;

// Returns the names that make_image_model accepts, from the smallest network of each family to the largest.
std::vector<std::string> image_models();

// Creates the network with this name and new parameters. Throws UsageError, which lists the names, if the name is
// unknown.
ImageModelPtr make_image_model(const std::string& name, std::int64_t classes = 10);

// The networks that make_image_model can create.
ImageModelPtr make_lenet(std::int64_t classes);
ImageModelPtr make_vgg16(std::int64_t classes);
ImageModelPtr make_resnet(int depth, std::int64_t classes);         // depth: 8, 20, 18, 34, 50
ImageModelPtr make_preact_resnet(int depth, std::int64_t classes);  // depth: 18, 34, 50
ImageModelPtr make_senet18(std::int64_t classes);
ImageModelPtr make_mobilenet_v2(std::int64_t classes);
ImageModelPtr make_densenet121(std::int64_t classes);

}  // namespace programs
