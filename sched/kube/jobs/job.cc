#include "kube/jobs/job.h"

#include <algorithm>
#include <charconv>

#include "kube/api/json_fields.h"
#include "kube/jobs/job_why.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

std::vector<std::string> texts(const json::array_t& array) {
  std::vector<std::string> all;
  for (const json& value : array) all.push_back(value.is_string() ? value.get<std::string>() : std::string());
  return all;
}

// Returns the message of the newest condition that has one.
std::string newest_condition(const json& object) {
  std::string message;
  std::optional<Time> newest;
  for (const json& condition : array_field(object, {"status", "conditions"})) {
    const auto changed = time_field(condition, {"lastTransitionTime"});
    const std::string text = text_field(condition, {"message"});
    if (text.empty() || (newest && (!changed || *changed < *newest))) continue;
    message = text;
    newest = changed;
  }
  return message;
}

std::optional<int> annotation(const json& pod, const char* name) {
  const std::string text = text_field(pod, {"metadata", "annotations", name});
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Sets the fields that depend on the container statuses.
void add_containers(const json& pod, Replica& replica) {
  const auto& statuses = array_field(pod, {"status", "containerStatuses"});
  replica.ready = !statuses.empty();
  replica.ended = replica.phase == "Succeeded" || replica.phase == "Failed";
  for (const json& status : statuses) {
    replica.ready = replica.ready && bool_field(status, {"ready"}, false);
    replica.restarts = std::max(replica.restarts, int_field(status, {"restartCount"}).value_or(0));
    if (text_field(status, {"name"}) != replica.container) continue;
    replica.started = field(status, {"state", "running"}).is_object() ||
                      field(status, {"state", "terminated"}).is_object() || replica.restarts > 0;
  }
  replica.waits = !replica.ended && !replica.started && !replica.node.empty();
}

}  // namespace

Job parse_job(const json& object) {
  Job job;
  job.name_space = text_field(object, {"metadata", "namespace"});
  job.name = text_field(object, {"metadata", "name"});
  job.uid = text_field(object, {"metadata", "uid"});
  job.created = time_field(object, {"metadata", "creationTimestamp"});
  job.deleted = time_field(object, {"metadata", "deletionTimestamp"});
  job.finalizers = texts(array_field(object, {"metadata", "finalizers"}));
  job.min_replicas = int_field(object, {"spec", "minReplicas"});
  job.max_replicas = int_field(object, {"spec", "maxReplicas"});
  job.preemptible = bool_field(object, {"spec", "preemptible"}, true);
  job.suspend = bool_field(object, {"spec", "suspend"}, false);
  job.phase = text_field(object, {"status", "phase"});
  job.reason = text_field(object, {"status", "reason"});
  job.message = text_field(object, {"status", "message"});
  job.condition = newest_condition(object);
  job.allocation = texts(array_field(object, {"status", "allocation"}));
  job.group = int_field(object, {"status", "group"});
  job.replicas = int_field(object, {"status", "replicas"});
  job.ready = int_field(object, {"status", "readyReplicas"});
  job.completed = time_field(object, {"status", "completionTimestamp"});
  job.train = field(object, {"status", "train"});
  job.usage = parse_usage(object);
  return job;
}

Replica parse_replica(const json& pod) {
  Replica replica;
  replica.name_space = text_field(pod, {"metadata", "namespace"});
  replica.name = text_field(pod, {"metadata", "name"});
  replica.uid = text_field(pod, {"metadata", "uid"});
  replica.job = text_field(pod, {"metadata", "labels", "adaptdl/job"});
  replica.node = text_field(pod, {"spec", "nodeName"});
  for (const json& owner : array_field(pod, {"metadata", "ownerReferences"})) {
    if (text_field(owner, {"kind"}) == "AdaptDLJob") replica.owner = text_field(owner, {"uid"});
  }
  replica.rank = annotation(pod, "adaptdl/rank").value_or(-1);
  replica.number = annotation(pod, "adaptdl/replica").value_or(replica.rank);
  replica.group = annotation(pod, "adaptdl/group").value_or(-1);
  replica.of = annotation(pod, "adaptdl/replicas").value_or(0);
  if (const auto& containers = array_field(pod, {"spec", "containers"}); !containers.empty())
    replica.container = text_field(containers.front(), {"name"});
  replica.phase = text_field(pod, {"status", "phase"});
  replica.leaving = !text_field(pod, {"metadata", "deletionTimestamp"}).empty();
  replica.created = time_field(pod, {"metadata", "creationTimestamp"});
  add_containers(pod, replica);
  replica.trouble = pod_trouble(pod);
  return replica;
}

Event parse_event(const json& object) {
  Event event;
  event.kind = text_field(object, {"involvedObject", "kind"});
  event.name_space = text_field(object, {"involvedObject", "namespace"});
  event.name = text_field(object, {"involvedObject", "name"});
  event.uid = text_field(object, {"involvedObject", "uid"});
  event.type = text_field(object, {"type"});
  event.reason = text_field(object, {"reason"});
  event.message = text_field(object, {"message"});
  event.count = int_field(object, {"count"}).value_or(int_field(object, {"series", "count"}).value_or(1));
  // Which of these fields is set depends on the component that reported the event and on the API that it used.
  for (const auto& last : {time_field(object, {"series", "lastObservedTime"}), time_field(object, {"lastTimestamp"}),
                           time_field(object, {"eventTime"}), time_field(object, {"firstTimestamp"}),
                           time_field(object, {"metadata", "creationTimestamp"})}) {
    if (last && !event.last) event.last = last;
  }
  return event;
}

std::string replica_selector(const std::string& job) { return std::string(kReplicaSelector) + ",adaptdl/job=" + job; }

}  // namespace adaptdl::kube
