// A pod that has nothing but a job's volume and tools to copy, for the time of a copy.
//
// It belongs to the job, waits for input that never comes, and is deleted when the copy ends; if whoever started it is
// killed, it ends by its deadline, and the next copy of that job takes it away.
//
// Threading: as its client. Lifetime: the pod goes with the object, or with Cleanup::run_all.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>

#include "kube/client.h"
#include "kube/copy/cleanup.h"

namespace adaptdl::kube {

inline constexpr const char* kCopyLabel = "adaptdl/cli-copy";  // its value is the job's name
inline constexpr auto kCopyDeadline = std::chrono::hours(1);   // a longer copy goes on in another pod

// The pod's object, for an AdaptDLJob. An empty image: the job's own. Throws Error if the job has no volume to copy
// from.
nlohmann::json helper_pod_object(const nlohmann::json& job, const std::string& name, const std::string& image);

// Whether a pod of that label is none that works for a copy any more.
bool is_leftover(const nlohmann::json& pod, std::chrono::system_clock::time_point now);

class HelperPod {
 public:
  // Waits until it runs. Throws Error with what keeps it from that, and Interrupted.
  HelperPod(Client& client, const nlohmann::json& job, const std::string& image, std::stop_token stop,
            const std::function<void(const std::string&)>& notice);
  const std::string& name() const { return name_; }

 private:
  void wait_until_running(std::stop_token stop, const std::function<void(const std::string&)>& notice);

  Client& client_;
  std::string name_, path_;
  std::unique_ptr<Cleanup> cleanup_;
};

}  // namespace adaptdl::kube
