#include "kube/copy/helper_pod.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <thread>

#include "kube/api/timestamp.h"
#include "kube/copy/shell.h"
#include "kube/jobs/job_why.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

constexpr const char* kVolume = "adaptdl-pvc";
constexpr const char* kContainer = "copy";
constexpr std::size_t kMaxLabelLength = 63;
constexpr auto kLookEvery = std::chrono::milliseconds(200);
constexpr auto kTroubleLasts = std::chrono::seconds(20);  // for problems that may go away, such as a slow image pull
constexpr auto kMaxStart = std::chrono::minutes(3);

// Names and label values must end with a letter or digit.
std::string cut(const std::string& name, std::size_t size) {
  std::string result = name.substr(0, size);
  while (!result.empty() && (result.back() == '-' || result.back() == '.')) result.pop_back();
  return result;
}

std::string label_of(const std::string& job) { return cut(job, kMaxLabelLength); }

json at(const json& object, const json::json_pointer& path) {
  return object.is_object() ? object.value(path, json()) : json();
}

bool is_volume(const json& value) { return value.is_object() && value.value("name", "") == kVolume; }

// Returns the mounts of the volume in the job's containers, one per path.
json mounts_of(const json& containers) {
  json mounts = json::array();
  for (const json& container : containers) {
    for (const json& mount : container.value("volumeMounts", json::array())) {
      if (!is_volume(mount)) continue;
      const std::string path = mount.value("mountPath", "");
      if (std::ranges::none_of(mounts, [&path](const json& other) { return other.value("mountPath", "") == path; }))
        mounts.push_back(mount);
    }
  }
  return mounts;
}

}  // namespace

json helper_pod_object(const json& job, const std::string& name, const std::string& image) {
  const std::string job_name = job.at("metadata").at("name");
  const json spec = at(job, "/spec/template/spec"_json_pointer);
  const json containers = spec.is_object() ? spec.value("containers", json::array()) : json::array();
  const json volumes = spec.is_object() ? spec.value("volumes", json::array()) : json::array();
  const json mounts = mounts_of(containers);
  const auto volume = std::ranges::find_if(volumes, is_volume);
  if (volume == volumes.end() || mounts.empty()) {
    throw Error(
        fmt::format("job '{}' mounts no volume '{}', which the helper pod for the copy requires; copy while a replica "
                    "is running, without --image",
                    job_name, kVolume));
  }
  json container{{"name", kContainer},
                 {"image", image.empty() ? containers.front().value("image", "") : image},
                 {"command", {"cat"}},
                 {"stdin", true},
                 {"resources", {{"requests", {{"cpu", "50m"}, {"memory", "64Mi"}}}, {"limits", {{"memory", "512Mi"}}}}},
                 {"volumeMounts", mounts}};
  if (containers.front().contains("securityContext"))
    container["securityContext"] = containers.front()["securityContext"];
  json pod_spec{{"restartPolicy", "Never"},
                {"activeDeadlineSeconds", std::chrono::seconds(kCopyDeadline).count()},
                {"terminationGracePeriodSeconds", 0},
                {"automountServiceAccountToken", false},
                {"containers", json::array({container})},
                {"volumes", json::array({*volume})}};
  for (const char* key : {"imagePullSecrets", "tolerations", "nodeSelector", "securityContext"}) {
    if (spec.contains(key)) pod_spec[key] = spec[key];
  }
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata",
           {{"name", name},
            {"labels", {{kCopyLabel, label_of(job_name)}}},
            {"ownerReferences",
             {{{"apiVersion", "adaptdl.petuum.com/v1"},
               {"kind", "AdaptDLJob"},
               {"name", job_name},
               {"uid", job.at("metadata").at("uid")}}}}}},
          {"spec", pod_spec}};
}

bool is_leftover(const json& pod, std::chrono::system_clock::time_point now) {
  const std::string phase = pod.value("/status/phase"_json_pointer, "");
  if (phase == "Succeeded" || phase == "Failed") return true;
  const auto created = parse_time(pod.value("/metadata/creationTimestamp"_json_pointer, ""));
  return created && now - *created > kCopyDeadline;
}

HelperPod::HelperPod(Client& client, const json& job, const std::string& image, std::stop_token stop,
                     const std::function<void(const std::string&)>& notice)
    : client_(client) {
  const std::string job_name = job.at("metadata").at("name");
  const std::string name_space = job.at("metadata").at("namespace");
  const std::string pods = path(kPods, name_space);
  for (const json& pod : client.list(pods, {.label_selector = fmt::format("{}={}", kCopyLabel, label_of(job_name))})) {
    if (!is_leftover(pod, std::chrono::system_clock::now())) continue;
    try {
      client.remove(path(kPods, name_space, pod.at("metadata").at("name").get<std::string>()));
    } catch (const ApiError& error) {
      if (!error.not_found()) throw;
    }
  }
  name_ = fmt::format("{}-copy-{:08x}", cut(job_name, 48), std::random_device()());
  path_ = path(kPods, name_space, name_);
  const json object = helper_pod_object(job, name_, image);
  cleanup_ = std::make_unique<Cleanup>([this] {
    try {
      client_.remove(path_, {.grace = std::chrono::seconds(0)});
    } catch (const Error&) {
      // Ignore the error: the pod still ends at its deadline or when its owner is deleted.
    }
  });
  client.create(pods, object);
  wait_until_running(stop, notice);
}

void HelperPod::wait_until_running(std::stop_token stop, const std::function<void(const std::string&)>& notice) {
  const auto begin = std::chrono::steady_clock::now();
  auto well = begin;
  std::string last;
  for (;;) {
    check(stop);
    const json pod = client_.get(path_);
    const std::string phase = pod.value("/status/phase"_json_pointer, "");
    if (phase == "Running") return;
    const std::string trouble = pod_trouble(pod);
    const auto now = std::chrono::steady_clock::now();
    if (trouble.empty()) well = now;
    const bool over = phase == "Failed" || phase == "Succeeded";
    if (over || now - well > kTroubleLasts || now - begin > kMaxStart) {
      throw Error(fmt::format("the helper pod for the copy did not become ready: {}",
                              !trouble.empty() ? trouble
                              : over           ? "it has ended"
                                               : "timed out waiting for its volume or image"));
    }
    if (!trouble.empty() && trouble != last && notice) notice(last = trouble);
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace adaptdl::kube
