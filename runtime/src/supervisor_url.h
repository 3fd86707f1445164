// Where the supervisor answers for a job.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::supervisor {

// `base`/`resource`/NAMESPACE/NAME for the job `namespace/name`, escaped. Throws UsageError on a job of another form.
std::string job_url(std::string base, std::string_view resource, const std::string& job_id);

// The beginning of an answer, fit for a line.
std::string shown(std::string body);

}  // namespace adaptdl::supervisor
