// Reads any text as a job file: it yields jobs with all required fields, or a one-line error that names the file.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "adaptdl/error.h"
#include "kube/jobs/job_file.h"

using adaptdl::kube::JobFileNeeds;
using nlohmann::json;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void require_job(const json& job, const JobFileNeeds& needs) {
  require(!job.dump().empty());  // throws if a string in it is not valid UTF-8
  require(job.at("kind") == "AdaptDLJob" && !job.contains("status") && !job.at("metadata").contains("uid"));
  const json& metadata = job.at("metadata");
  require(!needs.name || metadata.value("name", "") != "" || metadata.value("generateName", "") != "");
  const json& containers = job.at("spec").at("template").at("spec").at("containers");
  require(containers.is_array() && !containers.empty());
  for (const json& container : containers) require(!container.at("name").get<std::string>().empty());
  require(!needs.image || !containers[0].at("image").get<std::string>().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const JobFileNeeds needs{.name = size % 2 == 0, .image = size % 3 == 0};
  try {
    const std::vector<json> jobs = adaptdl::kube::parse_job_file(text, "job.yaml", needs);
    require(!jobs.empty());
    for (const json& job : jobs) require_job(job, needs);
  } catch (const adaptdl::Error& error) {
    const std::string message = error.what();
    const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
    require(message.starts_with("job.yaml:") && std::none_of(message.begin(), message.end(), is_control));
    require(!json(message).dump().empty());
  }
  return 0;
}
