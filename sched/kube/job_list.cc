#include "kube/job_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <future>
#include <mutex>

#include "kube/error.h"
#include "kube/job.h"
#include "kube/resource.h"

namespace adaptdl::kube {
namespace {

// More requests at once would only wait for each other in the server.
constexpr std::size_t kAtOnce = 16;

std::vector<nlohmann::json> get_jobs(Client& client, const JobQuery& query) {
  std::vector<nlohmann::json> found;
  for (std::size_t begin = 0; begin < query.names.size(); begin += kAtOnce) {
    std::vector<std::future<nlohmann::json>> answers;
    for (std::size_t i = begin; i < std::min(begin + kAtOnce, query.names.size()); ++i) {
      answers.push_back(std::async(std::launch::async, [&client, &query, i]() -> nlohmann::json {
        try {
          return client.get(path(kAdaptDLJobs, query.name_space, query.names[i]));
        } catch (const ApiError& error) {
          // Only where the kind is known does the answer name the object.
          if (!error.not_found() || !error.details().is_object() || !error.details().contains("name")) throw;
          return nullptr;
        }
      }));
    }
    for (auto& answer : answers) {
      if (nlohmann::json job = answer.get(); job.is_object()) found.push_back(std::move(job));
    }
  }
  return found;
}

}  // namespace

std::vector<JobView> list_jobs(Client& client, const JobQuery& query, Time now) {
  JobBook book;
  std::string pods = kReplicaSelector;
  if (!query.names.empty()) pods += fmt::format(",adaptdl/job in ({})", fmt::join(query.names, ","));
  std::mutex mutex;  // of the book
  auto listed_pods = std::async(std::launch::async, [&] {
    client.list(path(kPods, query.name_space), {.label_selector = pods, .field_selector = {}, .from_memory = true},
                [&](nlohmann::json&& pod) {
                  const std::lock_guard lock(mutex);
                  book.put_pod(pod);
                });
  });
  if (query.names.empty()) {
    client.list(path(kAdaptDLJobs, query.name_space), {.label_selector = query.selector, .field_selector = {}},
                [&](nlohmann::json&& job) {
                  const std::lock_guard lock(mutex);
                  book.put_job(job);
                });
  } else {
    const auto jobs = get_jobs(client, query);
    const std::lock_guard lock(mutex);
    for (const nlohmann::json& job : jobs) book.put_job(job);
  }
  listed_pods.get();
  if (book.wants_events()) {
    client.list(path(kEvents, query.name_space),
                {.label_selector = {}, .field_selector = "type=Warning", .from_memory = true},
                [&book](nlohmann::json&& event) { book.put_event(event); });
  }
  return book.views(now);
}

}  // namespace adaptdl::kube
