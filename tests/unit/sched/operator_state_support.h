// Jobs for tests of the operator's state.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "kube/api/json_fields.h"

namespace operator_state_support {

using adaptdl::kube::parse_time;
using adaptdl::kube::Time;
using nlohmann::json;

inline const Time kNow = *parse_time("2026-11-21T12:10:00Z");

inline json make_job(const json& status = json::object(), const std::string& uid = "u", int version = 10) {
  return {
      {"metadata", {{"namespace", "ns"}, {"name", "job"}, {"uid", uid}, {"resourceVersion", std::to_string(version)}}},
      {"spec",
       {{"maxReplicas", 4},
        {"template", {{"spec", {{"containers", {{{"name", "main"}, {"resources", {{"limits", {{"gpu", 1}}}}}}}}}}}}}},
      {"status", status}};
}

}  // namespace operator_state_support
