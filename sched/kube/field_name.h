// The names of fields in messages.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace adaptdl::kube {

// Returns a path as users write it, for example spec.template.spec.containers[0].name. Empty for the root.
std::string field_name(const nlohmann::json::json_pointer& path);

}  // namespace adaptdl::kube
