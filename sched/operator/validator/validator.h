// The admission webhook of AdaptDLJobs, which rejects invalid jobs when they are created or changed (job_review.h).
//
// The API server calls the webhook through the ValidatingWebhookConfiguration and the Service `name`. Through the
// MutatingWebhookConfiguration `name`, the webhook also annotates new jobs with the user who created them. The
// certificate is stored in the Secret `name` and renewed without interruption (serving_certificate.h). All operators
// run the webhook, whether they hold the lease or not.
//
// Threading: the validator has threads of its own. The client's access and the settings are copied.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <thread>

#include "kube/api/client.h"
#include "operator/validator/job_review.h"
#include "operator/validator/serving_certificate.h"
#include "operator/validator/webhook_server.h"

namespace adaptdl::sched {

struct ValidatorSettings {
  std::string address = "0.0.0.0";  // IP address to listen on
  std::uint16_t port = 8443;        // 0: any free port
  std::string name_space, name;     // the Service and the Secret; `name` is also the name of the configurations
  // Certificates are renewed when two thirds of this time has passed. Must be at least kMinLifetime.
  std::chrono::seconds certificate_lifetime = std::chrono::hours(90 * 24);
  std::function<std::string(const std::string&)> image_fault;  // see ReviewSettings

  static constexpr std::chrono::seconds kMinLifetime{180};
};

class Validator {
 public:
  // Starts to serve. If the API server does not answer in time, there is no certificate at first. Throws UsageError if
  // the address is invalid, and Error if the socket cannot be opened.
  Validator(kube::Access access, const PodSettings& pods, ValidatorSettings settings);
  // Closes all connections.
  ~Validator();

  // Serves for another 3 s, during which Kubernetes stops sending requests to a pod that is being deleted, and then
  // until all requests are answered, but for at most another 6 s.
  void drain();

 private:
  WebhookServer::Answer answer(const std::string& path, const std::string& body) const;
  nlohmann::json dry_run(const std::string& name_space, const nlohmann::json& pod);
  void renew_certificate(std::stop_token stop);
  bool try_pass();
  void pass();
  nlohmann::json configuration(const kube::Resource& kind);
  nlohmann::json mutating_configuration();
  ServingCertificate stored_certificate(const std::string& bundle);
  void write_bundle(const kube::Resource& kind, nlohmann::json configuration, const std::string& bundle);

  const ValidatorSettings settings_;
  kube::Client client_;
  ReviewSettings review_;  // does not change once a certificate is served
  std::mutex mutex_;
  std::condition_variable_any wake_;
  // Used by one thread at a time: the constructor's, then renewer_'s.
  CertificateRules rules_;
  bool version_known_ = false;  // whether the version of the API server is known
  bool submitters_known_ = true;
  std::string last_error_;
  WebhookServer server_;
  std::jthread renewer_;
};

}  // namespace adaptdl::sched
