#include "kube/jobs/job_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <optional>

#include "kube/api/error.h"
#include "kube/api/resource.h"
#include "kube/jobs/job.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

// More concurrent requests would only wait in the server's queue.
constexpr std::size_t kAtOnce = 16;

std::vector<json> get_jobs(Client& client, const JobQuery& query) {
  std::vector<json> found;
  for (std::size_t begin = 0; begin < query.names.size(); begin += kAtOnce) {
    std::vector<std::future<json>> answers;
    for (std::size_t i = begin; i < std::min(begin + kAtOnce, query.names.size()); ++i) {
      answers.push_back(std::async(std::launch::async, [&client, &query, i]() -> json {
        try {
          return client.get(path(kAdaptDLJobs, query.name_space, query.names[i]));
        } catch (const ApiError& error) {
          if (!error.missing_object()) throw;
          return nullptr;
        }
      }));
    }
    for (auto& answer : answers) {
      if (json job = answer.get(); job.is_object()) found.push_back(std::move(job));
    }
  }
  return found;
}

// Returns the number of objects in the store; null if the server does not report it.
std::optional<std::size_t> count_stored(Client& client, const std::string& collection) {
  const json first = client.get(collection, {{"limit", "1"}});
  const std::size_t here = first.value("items", json::array()).size();
  const json metadata = first.value("metadata", json::object());
  if (metadata.value("continue", "").empty()) return here;
  const auto rest = metadata.find("remainingItemCount");
  if (rest == metadata.end()) return {};
  return here + rest->get<std::size_t>();
}

// Lists the jobs in the cache. If the number of jobs in the store differs, the cache lags behind, so the jobs are read
// from the store.
std::vector<json> list_all_jobs(Client& client, const JobQuery& query) {
  const std::string collection = path(kAdaptDLJobs, query.name_space);
  ListOptions options{.label_selector = query.selector, .field_selector = {}};
  if (query.selector.empty()) {  // remainingItemCount is not set for selectors
    auto stored = std::async(std::launch::async, [&] { return count_stored(client, collection); });
    options.from_memory = true;
    std::vector<json> jobs = client.list(collection, options);
    if (jobs.size() == stored.get()) return jobs;
    options.from_memory = false;
  }
  return client.list(collection, options);
}

}  // namespace

std::vector<JobView> list_jobs(Client& client, const JobQuery& query, Time now) {
  JobIndex index;
  std::string pods = kReplicaSelector;
  if (!query.names.empty()) pods += fmt::format(",adaptdl/job in ({})", fmt::join(query.names, ","));
  std::mutex mutex;  // guards `index`
  auto listed_pods = std::async(std::launch::async, [&] {
    client.list(path(kPods, query.name_space), {.label_selector = pods, .field_selector = {}, .from_memory = true},
                [&](json&& pod) {
                  const std::lock_guard lock(mutex);
                  index.put_pod(pod);
                });
  });
  const auto jobs = query.names.empty() ? list_all_jobs(client, query) : get_jobs(client, query);
  {
    const std::lock_guard lock(mutex);
    for (const json& job : jobs) index.put_job(job);
  }
  listed_pods.get();
  if (index.wants_events()) {
    client.list(path(kEvents, query.name_space),
                {.label_selector = {}, .field_selector = "type=Warning", .from_memory = true},
                [&index](json&& event) { index.put_event(event); });
  }
  return index.views(now);
}

}  // namespace adaptdl::kube
