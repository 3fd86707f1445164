// The supervisor's URLs and answers.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::supervisor {

// Returns `base`/`resource`/NAMESPACE/NAME, escaped. Throws UsageError if `job_id` is not NAMESPACE/NAME.
std::string job_url(std::string base, std::string_view resource, const std::string& job_id);

// Returns the first 200 bytes of an answer on one line.
std::string shown(std::string body);

}  // namespace adaptdl::supervisor
