// Parses AdaptDLJob files as users write them: YAML or JSON, with one job per document.
//
// Refuses, with file, line and field, what the API server would accept but no job could run with: the server does not
// check a job's pod template until the scheduler creates a pod from it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::kube {

struct JobFileNeeds {
  bool name = true;   // each job must have a name or generateName; false: the caller adds one
  bool image = true;  // the first container must name an image too; false: the caller adds one
};

// Returns the jobs of a text, ready to be created except for what submission.h adds: without a status and the fields
// that only the server sets. Messages refer to `file`. Throws Error.
std::vector<nlohmann::json> parse_job_file(std::string_view text, const std::string& file, const JobFileNeeds& needs);

}  // namespace adaptdl::kube
