#include "operator/jobs/pod_facts.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "kube/api/json_fields.h"
#include "kube/api/resource.h"
#include "kube/jobs/job.h"
#include "kube/jobs/job_why.h"
#include "operator/jobs/replica_pod.h"

namespace adaptdl::sched {
namespace {

using kube::array_field;
using kube::field;
using kube::int_field;
using kube::text_field;
using nlohmann::json;

template <std::size_t N>
bool is_any_of(std::string_view text, const std::array<std::string_view, N>& all) {
  return std::ranges::find(all, text) != all.end();
}

// Values of status.reason in pods that Kubernetes ended.
constexpr std::array<std::string_view, 12> kLostReasons = {
    "Evicted",      "NodeLost", "Preempting",   "Preempted",  "UnexpectedAdmissionError", "TopologyAffinityError",
    "NodeAffinity", "Shutdown", "NodeShutdown", "Terminated", "TaintToleration",          "DisruptionTarget"};

bool lost(const json& pod) {
  const std::string reason = text_field(pod, {"status", "reason"});
  if (is_any_of(reason, kLostReasons) || reason.starts_with("OutOf") || reason.starts_with("Outof")) return true;
  return std::ranges::any_of(array_field(pod, {"status", "conditions"}), [](const json& condition) {
    return text_field(condition, {"type"}) == "DisruptionTarget" && text_field(condition, {"status"}) == "True";
  });
}

// Summarizes the containers that exited with an error.
struct ContainerEnds {
  bool any = false, all_checkpointed = true, out_of_memory = false;
  bool unknown = false;             // the node lost track of a container (e.g. in a reboot), so its code is meaningless
  std::optional<kube::Time> first;  // when the first of them exited
  std::optional<kube::Time> last;   // when the last container exited, with any code; empty if that is not known
};

bool is_valid_end(const std::optional<kube::Time>& when) { return when && when->time_since_epoch().count() > 0; }

ContainerEnds container_ends(const json& pod) {
  ContainerEnds ends;
  bool all_known = true;
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const json& status : array_field(pod, {"status", list})) {
      const json& ended = field(status, {"state", "terminated"});
      auto when = kube::time_field(ended, {"finishedAt"});
      // A time in 1970 means that the time is not known. If something other than the node ended the pod, the status may
      // still report a running container.
      if (!is_valid_end(when)) when.reset();
      all_known = all_known && (when || (ended.is_null() && field(status, {"state", "running"}).is_null()));
      ends.last = std::max(ends.last, when);
      const int code = int_field(ended, {"exitCode"}).value_or(0);
      if (code == 0) continue;
      ends.any = true;
      const std::string reason = text_field(ended, {"reason"});
      ends.out_of_memory |= reason == "OOMKilled";
      ends.unknown |= reason == "ContainerStatusUnknown" || reason == "Unknown";  // used by kubelet and containerd
      ends.all_checkpointed = ends.all_checkpointed && code == 143;
      if (when && (!ends.first || *when < *ends.first)) ends.first = when;
    }
  }
  if (!all_known) ends.last.reset();
  return ends;
}

void set_end(const json& pod, PodFacts& facts) {
  const std::string phase = text_field(pod, {"status", "phase"});
  if (phase != "Succeeded" && phase != "Failed") return;
  const ContainerEnds ends = container_ends(pod);
  facts.last_ended = ends.last;
  if (phase == "Succeeded") {
    facts.end = PodEnd::kSucceeded;
    return;
  }
  facts.ended = ends.first;
  // If a node refuses a pod, the pod fails before any of its containers is started.
  const std::string reason = text_field(pod, {"status", "reason"});
  const bool late = reason == "DeadlineExceeded", refused = !ends.any && !reason.empty() && !late;
  if (lost(pod) || ends.unknown || refused) {
    facts.end = PodEnd::kLost;
  } else if (ends.any && ends.all_checkpointed && !late) {
    facts.end = PodEnd::kCheckpointed;
  } else if (facts.leaving) {
    facts.end = PodEnd::kLost;
  } else {
    facts.end = PodEnd::kFailed;
    facts.reason = ends.out_of_memory ? "OOMKilled" : "PodFailure";
    facts.unhealthy_device = !ends.out_of_memory && !late && !kube::unhealthy_device(pod).empty();
  }
}

PodTrouble waiting_trouble(const json& pod) {
  static constexpr std::array<std::string_view, 3> kContainer = {"CreateContainerConfigError", "CreateContainerError",
                                                                 "RunContainerError"};
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const json& status : array_field(pod, {"status", list})) {
      const std::string reason = text_field(status, {"state", "waiting", "reason"});
      if (kube::is_pull_failure(reason)) return PodTrouble::kImage;
      if (is_any_of(reason, kContainer)) return PodTrouble::kContainer;
    }
  }
  return PodTrouble::kNone;
}

PodTrouble scheduling_trouble(const json& pod) {
  for (const json& condition : array_field(pod, {"status", "conditions"})) {
    if (text_field(condition, {"type"}) != "PodScheduled" || text_field(condition, {"status"}) != "False") continue;
    const bool volume = text_field(condition, {"message"}).find("ersistent") != std::string::npos;
    return volume ? PodTrouble::kVolume : PodTrouble::kUnscheduled;
  }
  return PodTrouble::kNone;
}

std::string token_of(const json& pod) {
  for (const json& container : array_field(pod, {"spec", "containers"})) {
    std::string token;
    for (const json& variable : array_field(container, {"env"})) {
      if (text_field(variable, {"name"}) == kTokenVariable) token = text_field(variable, {"value"});
    }
    if (!token.empty()) return token;
  }
  return "";
}

// Returns the replica's group and number from the pod's name.
std::optional<ReplicaNumber> replica_of(const json& pod) {
  const json& owner = owner_of(pod);
  const std::string name = kube::name_of(pod), first = replica_name({{"metadata", owner}}, 0, 0);
  const std::size_t prefix = first.size() - replica_id(0, 0).size();
  if (name.compare(0, prefix, first, 0, prefix) != 0) return {};
  return parse_replica_id(std::string_view(name).substr(prefix));
}

}  // namespace

const json& owner_of(const json& pod) {
  static const json kNone;
  if (text_field(pod, {"metadata", "labels", "adaptdl"}) != "true") return kNone;
  for (const json& owner : kube::array_field(pod, {"metadata", "ownerReferences"})) {
    if (text_field(owner, {"kind"}) == kube::kAdaptDLJobs.kind &&
        text_field(owner, {"apiVersion"}).starts_with("adaptdl.petuum.com/"))
      return owner;
  }
  return kNone;
}

PodFacts parse_pod(const json& pod) {
  const kube::Replica replica = kube::parse_replica(pod);
  PodFacts facts{
      .name = replica.name, .uid = replica.uid, .node = replica.node, .ip = text_field(pod, {"status", "podIP"})};
  if (const auto replica_number = replica_of(pod)) {
    facts.group = replica_number->group;
    facts.number = replica_number->number;
    facts.rank = replica.rank >= 0 ? replica.rank : facts.number;
  }
  facts.replicas = replica.of;
  facts.token = token_of(pod);
  facts.leaving = replica.leaving;
  facts.killed = facts.leaving && int_field(pod, {"metadata", "deletionGracePeriodSeconds"}) == 0;
  facts.created = replica.created;
  facts.message = replica.trouble;
  set_end(pod, facts);
  if (!facts.live()) return facts;
  facts.running = replica.phase == "Running" && replica.ready;
  facts.trouble = waiting_trouble(pod);
  if (facts.trouble == PodTrouble::kNone && facts.node.empty()) facts.trouble = scheduling_trouble(pod);
  return facts;
}

}  // namespace adaptdl::sched
