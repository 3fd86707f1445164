// Formats the names of fields for messages.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace adaptdl::kube {

// Returns a path as users write it, such as spec.template.spec.containers[0].name; empty for the root.
std::string field_name(const nlohmann::json::json_pointer& path);

}  // namespace adaptdl::kube
