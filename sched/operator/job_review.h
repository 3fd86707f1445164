// Decides whether the API server may store an AdaptDLJob: the answer to an AdmissionReview (admission.k8s.io/v1). Also
// has the API server store who created the job.
//
// The API server itself checks the schema of the resource. This checks what a schema cannot express: the number of
// replicas, the names of images, the pod template, by a dry run of the creation of a replica's pod, and that the spec
// of a job that has started does not change.
//
// Threading: pure functions apart from the dry run.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "operator/replica_pod.h"

namespace adaptdl::sched {

struct ReviewSettings {
  PodSettings pods;
  // Returns why an image's name is invalid; empty if it is valid.
  std::function<std::string(const std::string&)> image_fault;
  // Creates the pod in the namespace without storing it, and returns it as the API server would store it. Throws what
  // kube::Client::create() throws.
  std::function<nlohmann::json(const std::string& name_space, const nlohmann::json& pod)> dry_run;
  // Whether unknown fields of a pod are found by comparing it with what the API server returns. If false, the dry run
  // must refuse them (fieldValidation=Strict), so webhooks that remove fields make no difference.
  bool compare_fields = false;
};

struct ReviewVerdict {
  std::vector<std::string> faults;    // the job is accepted if there are none
  std::vector<std::string> warnings;  // shown by kubectl
};

// `request` is the `request` of an AdmissionReview. Throws Error if the job cannot be checked: the API server does not
// answer, or the operator lacks a permission.
ReviewVerdict review_job(const nlohmann::json& request, const ReviewSettings& settings);

// Returns the JSON patch that gives a new job the annotation kube::kSubmitterAnnotation, and keeps others from changing
// it. Empty: nothing has to be changed.
nlohmann::json submitter_patch(const nlohmann::json& request);

// Returns why the AdmissionReview is not read, to limit the memory and the stack that this takes; empty if it is.
std::string reading_fault(std::string_view review);

// What is known of the request of an AdmissionReview that is not read otherwise.
struct ReviewSummary {
  std::string uid;             // empty: it is not an AdmissionReview
  bool being_deleted = false;  // an update of a job that is being deleted, such as the removal of a finalizer
};
ReviewSummary summarize_review(std::string_view review);

// Returns an AdmissionReview that accepts the request with a JSON patch.
nlohmann::json patch_answer(const nlohmann::json& request, const nlohmann::json& patch);

// Returns an AdmissionReview with the response to the request.
nlohmann::json review_answer(const nlohmann::json& request, const ReviewVerdict& verdict);

}  // namespace adaptdl::sched
