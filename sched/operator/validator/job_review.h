// Decides whether the API server may store an AdaptDLJob, in response to an AdmissionReview (admission.k8s.io/v1). Also
// makes the API server store the name of the user who created the job.
//
// The API server itself checks the schema of the resource. These functions check what a schema cannot express: the
// number of replicas, the names of images, the pod template (by a dry run of the creation of a replica's pod), and that
// a job's spec does not change after the job has started.
//
// Threading: concurrent calls of review_job() may call the functions of ReviewSettings concurrently.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "operator/jobs/replica_pod.h"

namespace adaptdl::sched {

struct ReviewSettings {
  PodSettings pods;
  // Returns why an image's name is invalid; empty if it is valid.
  std::function<std::string(const std::string&)> image_fault;
  // Creates the pod in the namespace without storing it, and returns it as the API server would store it. Throws the
  // same errors as kube::Client::create().
  std::function<nlohmann::json(const std::string& name_space, const nlohmann::json& pod)> dry_run;
  // Whether unknown fields of a pod are found by comparing the pod with the one that the API server returns. If false,
  // the dry run must reject them (fieldValidation=Strict), so that webhooks that remove fields do not affect the check.
  bool compare_fields = false;
};

struct ReviewVerdict {
  std::vector<std::string> faults;    // empty if the job is accepted
  std::vector<std::string> warnings;  // shown by kubectl
};

// `request` is the field `request` of an AdmissionReview. Throws Error if the job cannot be checked, because the API
// server does not answer or the operator lacks a permission.
ReviewVerdict review_job(const nlohmann::json& request, const ReviewSettings& settings);

// Returns the JSON patch that adds the annotation kube::kSubmitterAnnotation to a new job, or that reverts a change
// to the annotation by a later request. Empty if nothing must be changed.
nlohmann::json submitter_patch(const nlohmann::json& request);

// Returns why parsing the AdmissionReview could use too much memory or stack; empty if it may be parsed.
std::string reading_fault(std::string_view review);

// Properties of an AdmissionReview that can be read even if it must not be parsed.
struct ReviewSummary {
  std::string uid;             // empty if it is not an AdmissionReview
  bool being_deleted = false;  // whether a job that is being deleted is updated, for example to remove a finalizer
};
ReviewSummary summarize_review(std::string_view review);

// Returns an AdmissionReview that accepts the request with a JSON patch.
nlohmann::json patch_answer(const nlohmann::json& request, const nlohmann::json& patch);

// Returns an AdmissionReview with the response to the request.
nlohmann::json review_answer(const nlohmann::json& request, const ReviewVerdict& verdict);

}  // namespace adaptdl::sched
