// The shell of a pod of a job: a running replica's, else that of a helper pod on the job's volume.
//
// A pod that goes while a copy is under way, as replicas do when a job is rescaled, is replaced by another, as if the
// connection had broken.
//
// Threading: as every Shell. Lifetime: ends before its client; a helper pod goes with it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>

#include "kube/client.h"
#include "kube/copy/helper_pod.h"
#include "kube/copy/replica_choice.h"
#include "kube/copy/shell.h"

namespace adaptdl::kube {

struct PodChoice {
  std::optional<int> rank;  // none: any replica
  std::string container;    // empty: the first
  std::string image;        // not empty: a helper pod of this image, though replicas may run
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
  std::string pod_, container_;  // empty: to be chosen
  std::unique_ptr<HelperPod> helper_;
  bool worked_ = false;  // of this pod
};

}  // namespace adaptdl::kube
