// Shared by the tests of the validator: a job, reviews of it, and an API server that checks pods.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kube/api/error.h"
#include "operator/validator/job_review.h"

namespace operator_review_support {

using adaptdl::kube::ApiError;
using adaptdl::sched::ReviewSettings;
using nlohmann::json;

inline json make_job() {
  return {{"metadata", {{"namespace", "ns"}, {"name", "job"}, {"uid", "1-2"}}},
          {"spec",
           {{"minReplicas", 1},
            {"maxReplicas", 4},
            {"template",
             {{"metadata", {{"generateName", "x"}, {"labels", {{"team", "a"}}}}},
              {"spec", {{"containers", {{{"name", "main"}, {"image", "good"}}}}}}}}}}};
}

inline json creation(const json& job) {
  return {{"uid", "r"}, {"operation", "CREATE"}, {"namespace", "ns"}, {"object", job}};
}

inline json update(const json& before, const json& after) {
  return {{"uid", "r"}, {"operation", "UPDATE"}, {"namespace", "ns"}, {"object", after}, {"oldObject", before}};
}

struct Server {
  std::vector<json> pods;            // the pods that it was asked to create
  std::function<void(json&)> store;  // changes a pod before it is returned, or throws

  ReviewSettings settings() {
    ReviewSettings settings;
    settings.image_fault = [](const std::string& image) {
      return image == "BAD" ? std::string("image 'BAD': wrong") : std::string();
    };
    settings.dry_run = [this](const std::string& name_space, const json& pod) {
      CHECK(name_space == "ns");
      pods.push_back(pod);
      json stored = pod;
      if (store) store(stored);
      return stored;
    };
    settings.compare_fields = true;
    return settings;
  }

  // Rejects every creation with this error.
  void refuse(int code, const std::string& message, json details = {}) {
    store = [=](json&) { throw ApiError("POST /pods: " + message, code, "", details, "", message); };
  }
};

}  // namespace operator_review_support
