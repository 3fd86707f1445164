#include "kube/jobs/job_index.h"

#include <algorithm>
#include <span>

#include "kube/api/json_fields.h"
#include "kube/jobs/job_why.h"

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

// Returns the pods of the newest group, by rank. Pods of older groups are being deleted.
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

void JobIndex::put_job(const json& object) { jobs_[key(object)] = parse_job(object); }
void JobIndex::drop_job(const json& object) { jobs_.erase(key(object)); }
void JobIndex::put_pod(const json& object) { pods_[job_key(object)][own_name(object)] = parse_replica(object); }
void JobIndex::drop_pod(const json& object) { drop(pods_, job_key(object), own_name(object)); }
void JobIndex::put_event(const json& object) { events_[subject_key(object)][own_name(object)] = parse_event(object); }
void JobIndex::drop_event(const json& object) { drop(events_, subject_key(object), own_name(object)); }

const JobIndex::Pods& JobIndex::pods_of(const Job& job) const {
  static const Pods none;
  const auto found = pods_.find(key(job.name_space, job.name));
  return found == pods_.end() ? none : found->second;
}

bool JobIndex::wants_events() const {
  return std::ranges::any_of(jobs_, [this](const auto& entry) {
    return kube::wants_events(entry.second, newest_group(pods_of(entry.second)));
  });
}

std::vector<JobView> JobIndex::views(Time now) const {
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

}  // namespace adaptdl::kube
