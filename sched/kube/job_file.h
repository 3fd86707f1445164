// Files of AdaptDLJobs, as users write them: YAML or JSON, one document a job.
//
// What the API server would take without a word and no job could run with is refused here, by file, line and field:
// the pod of a job is looked at by nobody until the scheduler makes one.
//
// Threading: plain values and functions.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::kube {

struct JobFileNeeds {
  bool name = true;   // each job has a name or generateName; false: it gets one from elsewhere
  bool image = true;  // the first container, too, names an image; false: likewise
};

// The jobs of a text, ready to be created but for what submission.h adds: without a status and what only the server
// sets. `file` stands for it in messages. Throws Error.
std::vector<nlohmann::json> parse_job_file(std::string_view text, const std::string& file, const JobFileNeeds& needs);

}  // namespace adaptdl::kube
