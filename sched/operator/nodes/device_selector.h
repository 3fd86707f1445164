// Selects devices by an expression in a DeviceClass (spec.selectors[].cel.expression of resource.k8s.io/v1).
//
// These expressions are written in CEL. Only conjunctions of comparisons are supported:
//
//   device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'gpu'
//
// GPU drivers use such expressions to select all their devices of a kind. A comparison uses == or != with a string, an
// integer or a Boolean; !device.attributes[…].NAME and device.attributes[…].NAME are comparisons with false and true.
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

  // Returns whether a device of a ResourceSlice matches. A device that lacks a compared attribute does not match.
  bool matches(const std::string& driver, const nlohmann::json& device) const;

  struct Comparison {
    std::string domain, attribute;  // empty if the driver is compared
    nlohmann::json value;
    bool equal = true;  // false for !=
  };

 private:
  std::vector<Comparison> comparisons_;
};

}  // namespace adaptdl::sched
