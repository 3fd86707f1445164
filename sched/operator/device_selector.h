// Selects devices by an expression of a DeviceClass (spec.selectors[].cel.expression of resource.k8s.io/v1).
//
// The language of these expressions is CEL, of which this reads conjunctions of comparisons:
//
//   device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'gpu'
//
// That is how the drivers of GPUs select all their devices of a kind. A comparison is by == or != with a string, an
// integer or a Boolean; !device.attributes[…].NAME and device.attributes[…].NAME alone compare with false and true.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::sched {

class DeviceSelector {
 public:
  // Throws Error if the expression is not such a conjunction.
  explicit DeviceSelector(std::string_view expression);

  // Whether a device of a ResourceSlice matches. A device without an attribute that is compared does not match.
  bool matches(const std::string& driver, const nlohmann::json& device) const;

  struct Comparison {
    std::string domain, attribute;  // empty: the driver
    nlohmann::json value;
    bool equal = true;  // or different
  };

 private:
  std::vector<Comparison> comparisons_;
};

}  // namespace adaptdl::sched
