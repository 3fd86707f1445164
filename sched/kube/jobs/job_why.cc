#include "kube/jobs/job_why.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <regex>

#include "base/counted.h"
#include "kube/api/json_fields.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

// How long a scheduler may take to act on a job, or a kubelet to act on a pod.
constexpr auto kActs = std::chrono::seconds(30);

bool is_any_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

// Returns the text as one line, without the prefix "rpc error: code = CODE desc = " of errors that a server passes on.
std::string tidy(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  static const std::regex noise(R"(rpc error: code = \w+ desc = )");
  if (text.find("rpc error") != std::string::npos) text = std::regex_replace(text, noise, "");
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

// Returns "head: text", or the head if there is no text.
std::string with(std::string head, const std::string& text) {
  const std::string tidied = tidy(text);
  return tidied.empty() ? head : head + ": " + tidied;
}

}  // namespace

bool is_pull_failure(std::string_view reason) {
  return is_any_of(reason, {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
                            "ImageInspectError", "RegistryUnavailable"});
}

namespace {

std::string describe_exit(const json& terminated, const json& container) {
  const int code = int_field(terminated, {"exitCode"}).value_or(-1);
  const std::string reason = text_field(terminated, {"reason"});
  if (reason == "OOMKilled") {
    const std::string limit = text_field(container, {"resources", "limits", "memory"});
    return "killed: out of memory" + (limit.empty() ? "" : " (limit " + limit + ')');
  }
  if (const int signal = int_field(terminated, {"signal"}).value_or(code > 128 && code < 160 ? code - 128 : 0);
      signal == 9 || signal == 6 || signal == 11)
    return with(fmt::format("killed by signal {}", signal), text_field(terminated, {"message"}));
  // These are the container runtime's reasons for a program that cannot be started.
  if (is_any_of(reason, {"ContainerCannotRun", "StartError"}))
    return with("cannot start", text_field(terminated, {"message"}));
  return with(fmt::format("exited with code {}", code), text_field(terminated, {"message"}));
}

const json& container_of(const json& pod, const std::string& name) {
  static const json none;
  for (const char* list : {"containers", "initContainers"}) {
    for (const json& container : array_field(pod, {"spec", list})) {
      if (text_field(container, {"name"}) == name) return container;
    }
  }
  return none;
}

std::string waiting_trouble(const json& status, const json& container) {
  const std::string reason = text_field(status, {"state", "waiting", "reason"});
  const std::string message = text_field(status, {"state", "waiting", "message"});
  if (is_pull_failure(reason)) {
    std::string image = text_field(container, {"image"});
    if (image.empty()) image = text_field(status, {"image"});
    // A "Back-off" message does not include the cause, but an event does.
    return with(fmt::format("cannot pull image '{}'", image), message.starts_with("Back-off") ? "" : message);
  }
  if (reason == "CrashLoopBackOff") {
    const json& last = field(status, {"lastState", "terminated"});
    return fmt::format("crash loop (restarts: {}): {}", int_field(status, {"restartCount"}).value_or(0),
                       last.is_object() ? describe_exit(last, container) : "exits immediately");
  }
  if (reason.empty() || is_any_of(reason, {"ContainerCreating", "PodInitializing"})) return "";
  if (is_any_of(reason, {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}))
    return with("cannot create its container", message);
  return with(reason, message);
}

std::string container_trouble(const json& pod) {
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const json& status : array_field(pod, {"status", list})) {
      const json& container = container_of(pod, text_field(status, {"name"}));
      if (const json& ended = field(status, {"state", "terminated"}); ended.is_object()) {
        if (int_field(ended, {"exitCode"}).value_or(0) != 0) return describe_exit(ended, container);
      }
      if (std::string trouble = waiting_trouble(status, container); !trouble.empty()) return trouble;
    }
  }
  return "";
}

std::string scheduling_trouble(const json& pod) {
  for (const json& condition : array_field(pod, {"status", "conditions"})) {
    if (text_field(condition, {"type"}) != "PodScheduled" || text_field(condition, {"status"}) != "False") continue;
    const std::string reason = text_field(condition, {"reason"});
    const std::string message = text_field(condition, {"message"});
    return reason == "Unschedulable" ? plain_unschedulable(message) : with(reason, message);
  }
  return "";
}

// Explains the state of a pod as a whole.
std::string pod_end(const json& pod) {
  const std::string reason = text_field(pod, {"status", "reason"});
  const std::string message = text_field(pod, {"status", "message"});
  if (reason == "Evicted") return with("evicted", message);
  if (reason == "NodeLost") return with("its node is unreachable", message);
  if (reason == "DeadlineExceeded") return with("exceeded its deadline", message);
  if (reason == "Preempting" || reason == "Preempted") return with("preempted by another pod", message);
  if (reason == "UnexpectedAdmissionError" || reason == "NodeAffinity" || reason.starts_with("OutOf") ||
      reason.starts_with("Outof"))
    return with("rejected by its node", message.empty() ? reason : message);
  if (text_field(pod, {"status", "phase"}) == "Unknown") return "its node is unreachable";
  return "";
}

struct Phrase {
  std::regex pattern;  // matches a whole part of the scheduler's message
  const char* plain;   // the replacement
  Phrase(const char* text, const char* words) : pattern(text), plain(words) {}
};

// Phrases that occur in the messages of several scheduler versions.
const auto& phrases() {
  static const std::array all = {
      Phrase{R"((\d+) Insufficient (\S+))", "$1 with insufficient $2"},
      Phrase{R"((\d+) Too many pods)", "$1 with the maximum number of pods"},
      Phrase{R"((\d+) node\(s\) (?:were|was) unschedulable)", "$1 cordoned"},
      Phrase{R"((\d+) node\(s\) didn't match (?:Pod's )?(?:node selector|node affinity|node affinity/selector))",
             "$1 without the labels that the pod requires"},
      Phrase{R"((\d+) node\(s\) (?:had|has) (?:untolerated )?taints? \{(.+)\}(?:, that the pod didn't tolerate)?)",
             "$1 with the untolerated taint $2"},
      Phrase{R"((\d+) node\(s\) had taints? that the pod didn't tolerate)", "$1 with an untolerated taint"},
      Phrase{R"((\d+) node\(s\) had volume node affinity conflict)", "$1 without access to the pod's volume"},
      Phrase{R"((\d+) node\(s\) didn't find available persistent volumes to bind)", "$1 without an available volume"},
      Phrase{R"((\d+) node\(s\) didn't have free ports for the requested pod ports)", "$1 with the pod's port in use"},
      Phrase{R"((\d+) node\(s\) (?:weren't|were not) ready|(\d+) node\(s\) not ready)", "$1$2 not ready"},
  };
  return all;
}

// Returns the problem with a volume claim that `message` reports. The message is from the scheduler or from an event.
std::string volume_trouble(const std::string& message) {
  if (message.find("ersistent") == std::string::npos) return "";
  std::smatch found;
  static const std::regex missing(R"re(persistentvolumeclaim "([^"]+)" (not found|is being deleted))re");
  if (std::regex_search(message, found, missing)) {
    return found[2] == "not found" ? fmt::format("its volume claim '{}' does not exist", found[1].str())
                                   : fmt::format("its volume claim '{}' is being deleted", found[1].str());
  }
  if (message.find("unbound immediate PersistentVolumeClaims") != std::string::npos)
    return "its volume claim is not bound yet";
  return "";
}

}  // namespace

std::string plain_unschedulable(std::string_view original) {
  std::string message = tidy(std::string(original.substr(0, original.find(" preemption: "))));
  if (std::string trouble = volume_trouble(message); !trouble.empty()) return trouble;
  std::smatch head;
  static const std::regex shape(R"((\d+)/(\d+) nodes are available: (.*))");
  if (!std::regex_match(message, head, shape)) return with("no node found", message);
  const std::string total = head[2];
  std::string rest = head[3];
  // A taint may contain a comma.
  static const std::regex comma(R"(, (?=\d+ ))");
  std::vector<std::string> parts;
  for (std::sregex_token_iterator part(rest.begin(), rest.end(), comma, -1), end; part != end; ++part) {
    std::string text = *part;
    for (const Phrase& phrase : phrases()) {
      if (std::regex_match(text, phrase.pattern)) {
        text = std::regex_replace(text, phrase.pattern, phrase.plain);
        break;
      }
    }
    parts.push_back(std::move(text));
  }
  return fmt::format("no node fits ({} in total): {}", total, fmt::join(parts, ", "));
}

std::string unhealthy_device(const json& pod) {
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const json& status : array_field(pod, {"status", list})) {
      for (const json& resource : array_field(status, {"allocatedResourcesStatus"})) {
        for (const json& device : array_field(resource, {"resources"})) {
          if (text_field(device, {"health"}) != "Unhealthy") continue;
          return with(fmt::format("its device '{}' ({}) is unhealthy", text_field(device, {"resourceID"}),
                                  text_field(resource, {"name"})),
                      text_field(device, {"message"}));
        }
      }
    }
  }
  return "";
}

std::string pod_trouble(const json& pod) {
  const std::string phase = text_field(pod, {"status", "phase"});
  if (phase == "Succeeded") return "";
  std::string trouble = pod_end(pod);
  if (trouble.empty()) trouble = container_trouble(pod);
  if (trouble.empty()) trouble = scheduling_trouble(pod);
  if (trouble.empty() && phase == "Failed") trouble = with("failed", text_field(pod, {"status", "message"}));
  const std::string device = unhealthy_device(pod);
  if (trouble.empty() || device.empty()) return trouble.empty() ? device : trouble;
  return fmt::format("{}; {}", trouble, device);
}

namespace {

// Explains an event that reports a problem with a pod, or pods that cannot be created. Returns "" for other events.
std::string event_trouble(const Event& event) {
  if (is_any_of(event.reason, {"FailedMount", "FailedAttachVolume", "FailedMapVolume"})) {
    const std::string volume = volume_trouble(event.message);
    return volume.empty() ? with("its volume cannot be mounted", event.message) : volume;
  }
  if (event.reason == "FailedCreatePodSandBox" || event.reason == "FailedCreatePodContainer")
    return with("cannot create its container", event.message);
  if (event.reason == "NetworkNotReady") return with("its node has no network", event.message);
  if (event.reason == "FailedScheduling") return plain_unschedulable(event.message);
  if (event.reason == "Failed" && event.message.starts_with("Failed to pull image")) {
    static const std::regex pulled(R"re(Failed to pull image "([^"]*)": (.*))re");
    const std::string message = tidy(event.message);
    std::smatch found;
    if (std::regex_match(message, found, pulled))
      return with(fmt::format("cannot pull image '{}'", found[1].str()), found[2].str());
    return message;
  }
  if (is_any_of(event.reason, {"FailedCreate", "PodCreationError"})) {
    std::smatch found;
    static const std::regex quota(R"(.*exceeded quota: (.*))");
    const std::string message = tidy(event.message);
    if (std::regex_match(message, found, quota)) return "its pods exceed the quota " + found[1].str();
    return with("cannot create its pods", message);
  }
  return "";
}

// Returns the newest event that is about the object and explains a problem. The event "Error: ErrImagePull", which
// follows "Failed to pull image", is not such an event.
const Event* newest(std::span<const Event> events, const std::string& uid, std::string_view name_space,
                    std::string_view name, std::string_view kind) {
  const Event* found = nullptr;
  for (const Event& event : events) {
    const bool same = event.kind == kind && event.name == name && event.name_space == name_space &&
                      (event.uid.empty() || uid.empty() || event.uid == uid);
    if (!same || event_trouble(event).empty()) continue;
    if (found == nullptr || (event.last && (!found->last || *event.last > *found->last))) found = &event;
  }
  return found;
}

std::string replica_trouble(const Replica& replica, std::span<const Event> events) {
  const bool pull = replica.trouble.starts_with("cannot pull image");
  if (!pull && !replica.trouble.empty()) return replica.trouble;
  if (!pull && !replica.waits && !replica.node.empty()) return "";
  const Event* event = newest(events, replica.uid, replica.name_space, replica.name, "Pod");
  const std::string reported = event == nullptr ? "" : event_trouble(*event);
  // While a pull is retried, the pod itself reports only the back-off.
  return reported.empty() || (pull && !reported.starts_with("cannot pull")) ? replica.trouble : reported;
}

// Explains the replicas' problem. A problem that several replicas share is reported once.
std::string replicas_why(const Job& job, std::span<const Replica> replicas, std::span<const Event> events) {
  int group = -1;
  for (const Replica& replica : replicas) group = std::max(group, replica.group);
  std::map<std::string, std::vector<int>> ranks;  // by trouble
  std::vector<std::string> order;
  int all = 0;
  for (const Replica& replica : replicas) {
    if (replica.group != group || (replica.leaving && !job.ended())) continue;
    ++all;
    const std::string trouble = replica_trouble(replica, events);
    // After a request to stop, exit code 143 means that a checkpoint was saved. Such an exit is not a failure if the
    // job may be moved or suspended.
    const bool may_stop = job.preemptible || job.suspend;
    if (trouble.empty() || (may_stop && trouble == "exited with code 143")) continue;
    if (ranks[trouble].empty()) order.push_back(trouble);
    ranks[trouble].push_back(replica.rank);
  }
  if (order.empty()) return "";
  const std::string& first = order.front();
  const std::size_t same = ranks[first].size();
  if (all == 1 || static_cast<int>(same) == all) return first;
  std::string why = fmt::format("replica {}: {}", *std::ranges::min_element(ranks[first]), first);
  if (same > 1) why += fmt::format(" (same for {} of {} replicas)", same, all);
  return why;
}

std::string deletion_why(const Job& job, std::span<const Replica> replicas) {
  std::vector<std::string> held;
  bool waits = false;
  for (const std::string& finalizer : job.finalizers) {
    if (finalizer == "foregroundDeletion") {
      waits = true;
    } else {
      held.push_back(finalizer);
    }
  }
  if (!held.empty()) return fmt::format("is being deleted; waiting for finalizers: {}", fmt::join(held, ", "));
  if (waits && !replicas.empty()) return fmt::format("is being deleted with its {}", counted(replicas.size(), "pod"));
  return "is being deleted";
}

std::string quiet_why(const Job& job, std::span<const Replica> replicas, Time now) {
  const auto age = job.created ? now - *job.created : Time::duration();
  if (job.phase.empty()) {
    if (!replicas.empty()) return "";
    return age > kActs ? "no scheduler has acted on it; is the AdaptDL scheduler running in this cluster?"
                       : "no scheduler has acted on it yet";
  }
  if (job.phase == "Pending" && job.allocation.empty() && replicas.empty())
    return job.group ? "waiting for free nodes to resume on" : "waiting for free nodes";
  if (job.phase == "Starting" && replicas.empty() && age > kActs) return "its pods have not been created yet";
  if (job.phase == "Stopping") return "its replicas are saving a checkpoint before they end";
  return "";
}

}  // namespace

std::string job_why(const Job& job, std::span<const Replica> replicas, std::span<const Event> events, Time now) {
  if (job.deleted) return deletion_why(job, replicas);
  if (job.phase == "Succeeded") return "";
  // The reasons in earlier events and ended pods no longer matter.
  if (job.phase == "Suspended") return tidy(job.message);
  if (std::string why = replicas_why(job, replicas, events); !why.empty()) return why;
  if (job.ended()) {
    if (job.reason.empty() || is_any_of(job.reason, {"PodFailure"})) return tidy(job.message);
    return with(job.reason, job.message);
  }
  if (replicas.empty()) {
    if (const Event* event = newest(events, job.uid, job.name_space, job.name, "AdaptDLJob"))
      return event_trouble(*event);
  }
  if (!job.message.empty()) return tidy(job.message);
  if (!job.condition.empty() && job.phase != "Running") return tidy(job.condition);
  return quiet_why(job, replicas, now);
}

bool wants_events(const Job& job, std::span<const Replica> replicas) {
  if (job.ended() || job.deleted || job.phase == "Suspended") return false;
  if (replicas.empty()) return job.phase != "Running";
  return std::ranges::any_of(replicas, [](const Replica& replica) {
    return replica.waits || (replica.node.empty() && !replica.ended) ||
           replica.trouble.starts_with("cannot pull image");
  });
}

}  // namespace adaptdl::kube
