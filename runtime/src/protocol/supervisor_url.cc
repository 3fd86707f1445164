#include "protocol/supervisor_url.h"

#include <fmt/core.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "http/http.h"

namespace adaptdl::supervisor {

std::string job_url(std::string base, std::string_view resource, const std::string& job_id) {
  const auto slash = job_id.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == job_id.size() ||
      job_id.find('/', slash + 1) != std::string::npos)
    throw UsageError(fmt::format("invalid job '{}': expected NAMESPACE/NAME; set ADAPTDL_JOB_ID", job_id));
  while (!base.empty() && base.back() == '/') base.pop_back();
  return fmt::format("{}/{}/{}/{}", base, resource, http::escape(job_id.substr(0, slash)),
                     http::escape(job_id.substr(slash + 1)));
}

std::string shown(std::string body) {
  constexpr std::size_t kShown = 200;
  body = body.substr(0, kShown);
  std::replace_if(
      body.begin(), body.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return body;
}

}  // namespace adaptdl::supervisor
