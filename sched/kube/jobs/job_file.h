// Parses AdaptDLJob files as users write them: YAML or JSON, with one job per document.
//
// Rejects errors that the API server would accept but that would keep a job from running: the server does not check a
// job's pod template until the scheduler creates a pod from it. Messages name the file, line and field.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::kube {

struct JobFileNeeds {
  bool name = true;   // each job must have a name or generateName; false: the caller adds one
  bool image = true;  // the first container must also name an image; false: the caller adds one
};

// Returns the jobs in a text, without their status or the fields that only the server sets. The jobs are ready to be
// created, except for the fields that submission.h adds. Messages refer to the text as `file`. Throws Error.
std::vector<nlohmann::json> parse_job_file(std::string_view text, const std::string& file, const JobFileNeeds& needs);

}  // namespace adaptdl::kube
