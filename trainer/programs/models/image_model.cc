#include "image_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <utility>

#include "adaptdl/error.h"

namespace programs {

namespace {

using Make = std::function<ImageModelPtr(std::int64_t classes)>;

const std::vector<std::pair<std::string, Make>>& table() {
  const auto resnet = [](int depth) { return [depth](std::int64_t classes) { return make_resnet(depth, classes); }; };
  const auto preact = [](int depth) {
    return [depth](std::int64_t classes) { return make_preact_resnet(depth, classes); };
  };
  static const std::vector<std::pair<std::string, Make>> models = {{"lenet", make_lenet},
                                                                   {"vgg16", make_vgg16},
                                                                   {"mobilenetv2", make_mobilenet_v2},
                                                                   {"resnet8", resnet(8)},
                                                                   {"resnet20", resnet(20)},
                                                                   {"resnet18", resnet(18)},
                                                                   {"resnet34", resnet(34)},
                                                                   {"resnet50", resnet(50)},
                                                                   {"preactresnet18", preact(18)},
                                                                   {"preactresnet34", preact(34)},
                                                                   {"preactresnet50", preact(50)},
                                                                   {"senet18", make_senet18},
                                                                   {"densenet121", make_densenet121}};
  return models;
}

}  // namespace

std::vector<std::string> image_models() {
  std::vector<std::string> names;
  for (const auto& [name, make] : table()) names.push_back(name);
  return names;
}

ImageModelPtr make_image_model(const std::string& name, std::int64_t classes) {
  for (const auto& [known, make] : table()) {
    if (known == name) return make(classes);
  }
  throw adaptdl::UsageError(
      fmt::format("unknown --model '{}': expected one of {}", name, fmt::join(image_models(), ", ")));
}

}  // namespace programs
