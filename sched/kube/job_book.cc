#include "kube/job_book.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <span>

#include "kube/job_why.h"
#include "kube/json_fields.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

std::string key(const std::string& name_space, const std::string& name) { return name_space + '/' + name; }

std::string key(const json& object) {
  return key(text_field(object, {"metadata", "namespace"}), text_field(object, {"metadata", "name"}));
}

std::string job_key(const json& pod) {
  return key(text_field(pod, {"metadata", "namespace"}), text_field(pod, {"metadata", "labels", "adaptdl/job"}));
}

std::string subject_key(const json& event) {
  return key(text_field(event, {"involvedObject", "namespace"}), text_field(event, {"involvedObject", "name"}));
}

std::string own_name(const json& object) { return text_field(object, {"metadata", "name"}); }

template <typename Map>
void drop(Map& map, const std::string& outer, const std::string& inner) {
  const auto found = map.find(outer);
  if (found == map.end()) return;
  found->second.erase(inner);
  if (found->second.empty()) map.erase(found);
}

// The pods of the newest group, by rank: those of one before are on their way out.
std::vector<Replica> newest_group(const std::map<std::string, Replica>& pods) {
  int group = -1;
  for (const auto& [name, pod] : pods) group = std::max(group, pod.group);
  std::vector<Replica> replicas;
  for (const auto& [name, pod] : pods) {
    if (pod.group == group) replicas.push_back(pod);
  }
  std::ranges::stable_sort(replicas, {}, &Replica::rank);
  return replicas;
}

int wanted_replicas(const Job& job, std::span<const Replica> replicas) {
  if (job.replicas) return *job.replicas;
  if (!job.allocation.empty()) return static_cast<int>(job.allocation.size());
  return replicas.empty() ? 0 : std::max<int>(replicas.front().of, static_cast<int>(replicas.size()));
}

}  // namespace

void JobBook::put_job(const json& object) { jobs_[key(object)] = parse_job(object); }
void JobBook::drop_job(const json& object) { jobs_.erase(key(object)); }
void JobBook::put_pod(const json& object) { pods_[job_key(object)][own_name(object)] = parse_replica(object); }
void JobBook::drop_pod(const json& object) { drop(pods_, job_key(object), own_name(object)); }
void JobBook::put_event(const json& object) { events_[subject_key(object)][own_name(object)] = parse_event(object); }
void JobBook::drop_event(const json& object) { drop(events_, subject_key(object), own_name(object)); }

const JobBook::Pods& JobBook::pods_of(const Job& job) const {
  static const Pods none;
  const auto found = pods_.find(key(job.name_space, job.name));
  return found == pods_.end() ? none : found->second;
}

bool JobBook::wants_events() const {
  return std::ranges::any_of(jobs_, [this](const auto& entry) {
    return kube::wants_events(entry.second, newest_group(pods_of(entry.second)));
  });
}

std::vector<JobView> JobBook::views(Time now) const {
  std::vector<JobView> all;
  all.reserve(jobs_.size());
  for (const auto& [id, job] : jobs_) {
    JobView view{.job = job, .replicas = newest_group(pods_of(job)), .why = {}};
    std::vector<Event> events;
    const auto add = [&](const std::string& subject) {
      if (const auto found = events_.find(subject); found != events_.end()) {
        for (const auto& [name, event] : found->second) events.push_back(event);
      }
    };
    add(id);
    for (const Replica& replica : view.replicas) add(key(replica.name_space, replica.name));
    view.why = job_why(job, view.replicas, events, now);
    view.wanted = wanted_replicas(job, view.replicas);
    view.ready = view.replicas.empty() ? job.ready.value_or(0)
                                       : static_cast<int>(std::ranges::count_if(view.replicas, &Replica::ready));
    all.push_back(std::move(view));
  }
  std::ranges::stable_sort(all, {}, [](const JobView& view) { return view.job.created.value_or(Time::min()); });
  return all;
}

namespace {

// More requests at once would only wait for each other in the server.
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
          // Only where the kind is known does the answer name the object.
          if (!error.not_found() || !error.details().is_object() || !error.details().contains("name")) throw;
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

}  // namespace

std::vector<JobView> list_jobs(Client& client, const JobQuery& query, Time now) {
  JobBook book;
  std::string pods = kReplicaSelector;
  if (!query.names.empty()) pods += fmt::format(",adaptdl/job in ({})", fmt::join(query.names, ","));
  std::mutex mutex;  // of the book
  auto listed_pods = std::async(std::launch::async, [&] {
    client.list(path(kPods, query.name_space), {.label_selector = pods, .field_selector = {}, .from_memory = true},
                [&](json&& pod) {
                  const std::lock_guard lock(mutex);
                  book.put_pod(pod);
                });
  });
  if (query.names.empty()) {
    client.list(path(kAdaptDLJobs, query.name_space), {.label_selector = query.selector, .field_selector = {}},
                [&](json&& job) {
                  const std::lock_guard lock(mutex);
                  book.put_job(job);
                });
  } else {
    const auto jobs = get_jobs(client, query);
    const std::lock_guard lock(mutex);
    for (const json& job : jobs) book.put_job(job);
  }
  listed_pods.get();
  if (book.wants_events()) {
    client.list(path(kEvents, query.name_space),
                {.label_selector = {}, .field_selector = "type=Warning", .from_memory = true},
                [&book](json&& event) { book.put_event(event); });
  }
  return book.views(now);
}

}  // namespace adaptdl::kube
