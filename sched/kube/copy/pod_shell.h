// A shell in one of a job's pods: a running replica or, if there is none, a helper pod with the job's volume.
//
// If the pod disappears during a copy, as replicas do when a job is rescaled, the copy continues in another pod, in the
// same way as after a broken connection.
//
// Lifetime: the client must outlive the shell, which deletes its helper pod.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>

#include "kube/api/client.h"
#include "kube/copy/helper_pod.h"
#include "kube/copy/replica_choice.h"
#include "kube/copy/shell.h"

namespace adaptdl::kube {

struct PodChoice {
  std::optional<int> rank;  // null: any replica
  std::string container;    // empty: the first container
  std::string image;        // if not empty, use a helper pod with this image even if replicas are running
};

class PodShell : public Shell {
 public:
  PodShell(Client& client, nlohmann::json job, PodChoice choice, std::stop_token stop,
           std::function<void(const std::string&)> notice);
  ~PodShell() override;
  std::unique_ptr<Process> start(const std::vector<std::string>& command, bool with_input) override;
  std::string name() const override;

 private:
  void choose();

  Client& client_;
  nlohmann::json job_;
  PodChoice choice_;
  std::stop_token stop_;
  std::function<void(const std::string&)> notice_;
  mutable std::mutex mutex_;
  std::string pod_, container_;  // empty: not chosen yet
  std::unique_ptr<HelperPod> helper_;
  bool worked_ = false;  // a command was started in this pod
};

}  // namespace adaptdl::kube
