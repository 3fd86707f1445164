// A temporary pod that mounts a job's volume and provides the tools for copying.
//
// The job owns the pod. The pod waits for input that never arrives, and is deleted when the copy ends. If the process
// that created it is killed, the pod ends at its deadline, and the job's next copy deletes it.
//
// Lifetime: the destructor or Cleanup::run_all deletes the pod.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>

#include "kube/api/client.h"
#include "kube/copy/cleanup.h"

namespace adaptdl::kube {

inline constexpr const char* kCopyLabel = "adaptdl/cli-copy";  // its value is the job's name
inline constexpr auto kCopyDeadline = std::chrono::hours(1);   // a longer copy continues in another pod

// Returns the pod's object for an AdaptDLJob. If `image` is empty, the job's image is used. Throws Error if the job has
// no volume to copy from.
nlohmann::json helper_pod_object(const nlohmann::json& job, const std::string& name, const std::string& image);

// Returns whether a pod with kCopyLabel is no longer used by a copy.
bool is_leftover(const nlohmann::json& pod, std::chrono::system_clock::time_point now);

class HelperPod {
 public:
  // Deletes the leftovers of the job's earlier copies, creates the pod, and waits until it is running. Throws an Error
  // with the reason if the pod does not start, or Interrupted after a stop request.
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
