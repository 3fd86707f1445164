// What `adaptdl submit` prints on standard output.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command/submit/submit_options.h"
#include "kube/api/client.h"
#include "kube/jobs/submission.h"

namespace adaptdl::cli {

// Prints the objects that would be created, as YAML, or as JSON if `form` is "json".
void print_objects(const std::vector<kube::Submission>& all, const std::string& form);

// Prints a job that was created: as JSON with --json, as a name if standard output is not a terminal, and otherwise
// with the commands that show the job.
void print_created(const nlohmann::json& job, const kube::Client& client, const SubmitOptions& options);

}  // namespace adaptdl::cli
