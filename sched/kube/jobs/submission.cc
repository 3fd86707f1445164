#include "kube/jobs/submission.h"

#include <fmt/format.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "http/http.h"
#include "kube/api/json_fields.h"
#include "kube/api/names.h"
#include "kube/api/quantity.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

const json::json_pointer kPodSpec("/spec/template/spec");

std::string job_name(const json& metadata, const SubmissionOptions& options) {
  if (!options.name.empty()) {
    if (const std::string why = not_a_job_prefix(options.name + '-'); !why.empty() || not_a_label(options.name) != "")
      throw UsageError(why.empty() ? fmt::format("submit: --name {}", not_a_label(options.name))
                                   : fmt::format("submit: invalid --name: the prefix of the job's name {}", why));
    return generate_name(options.name + '-');
  }
  const std::string name = text_field(metadata, {"name"});
  return name.empty() ? generate_name(text_field(metadata, {"generateName"})) : name;
}

void set_replicas(json& spec, const SubmissionOptions& options) {
  if (options.min_replicas) spec["minReplicas"] = *options.min_replicas;
  if (options.max_replicas) spec["maxReplicas"] = *options.max_replicas;
  const int min_replicas = int_field(spec, {"minReplicas"}).value_or(0);
  const std::optional<int> max_replicas = int_field(spec, {"maxReplicas"});
  if (max_replicas && min_replicas > *max_replicas)
    throw UsageError(
        fmt::format("submit: the minimum number of replicas ({}) must not be greater than the maximum ({})",
                    min_replicas, *max_replicas));
}

void append_item(json& object, const char* list, json&& item) {
  json& items = object[list];
  if (!items.is_array()) items = json::array();
  items.push_back(std::move(item));
}

void add_volume(json& pod, const char* name, const std::string& claim) {
  append_item(pod, "volumes", {{"name", name}, {"persistentVolumeClaim", {{"claimName", claim}}}});
}

void set_environment(json& container, const char* name, const char* value) {
  append_item(container, "env", {{"name", name}, {"value", value}});
}

void add_volumes(json& pod, const std::string& claim, const std::string& tensorboard) {
  add_volume(pod, kJobVolume, claim);
  if (!tensorboard.empty()) add_volume(pod, kTensorBoardVolume, tensorboard);
  for (json& container : pod["containers"]) {
    append_item(container, "volumeMounts",
                {{"name", kJobVolume}, {"mountPath", kCheckpointPath}, {"subPath", "adaptdl/checkpoint"}});
    append_item(container, "volumeMounts",
                {{"name", kJobVolume}, {"mountPath", kSharePath}, {"subPath", "adaptdl/share"}});
    set_environment(container, "ADAPTDL_CHECKPOINT_PATH", kCheckpointPath);
    set_environment(container, "ADAPTDL_SHARE_PATH", kSharePath);
    if (tensorboard.empty()) continue;
    append_item(container, "volumeMounts", {{"name", kTensorBoardVolume}, {"mountPath", kTensorBoardPath}});
    set_environment(container, "ADAPTDL_TENSORBOARD_LOGDIR", kTensorBoardPath);
  }
}

json make_claim(const std::string& name, const json& job, const SubmissionOptions& options) {
  const json& metadata = job["metadata"];
  json claim{{"apiVersion", "v1"},
             {"kind", kPersistentVolumeClaims.kind},
             {"metadata",
              {{"name", name}, {"namespace", metadata["namespace"]}, {"labels", {{"adaptdl/job", metadata["name"]}}}}},
             {"spec",
              {{"accessModes", {options.storage ? options.storage->access_mode : "ReadWriteMany"}},
               {"volumeMode", "Filesystem"},
               {"resources", {{"requests", {{"storage", options.storage_size}}}}}}}};
  if (options.storage) claim["spec"]["storageClassName"] = options.storage->storage_class;
  return claim;
}

std::string job_path(const Submission& one) { return path(kAdaptDLJobs, one.name_space(), one.name()); }
std::string claim_path(const Submission& one) {
  return path(kPersistentVolumeClaims, one.name_space(), text_field(one.claim, {"metadata", "name"}));
}

// Returns a replica's pod, as far as it is known before the scheduler creates it.
json sample_pod(const json& job) {
  json pod = job["spec"]["template"];
  json labels = field(pod, {"metadata", "labels"}), notes = field(pod, {"metadata", "annotations"});
  pod["apiVersion"] = "v1";
  pod["kind"] = "Pod";
  pod["metadata"] = {{"name", job["metadata"]["name"]}, {"namespace", job["metadata"]["namespace"]}};
  if (labels.is_object()) pod["metadata"]["labels"] = labels;
  if (notes.is_object()) pod["metadata"]["annotations"] = notes;
  pod["spec"]["restartPolicy"] = "Never";
  return pod;
}

// Throws the error for a job name that is already taken. The name is from the job file or from the user.
[[noreturn]] void refuse_taken(const Submission& one) {
  throw Error(
      fmt::format("job '{0}' already exists in namespace '{1}'; delete it with `adaptdl delete -n {1} {0}`, or choose "
                  "another name with --name",
                  one.name(), one.name_space()));
}

}  // namespace

std::string claim_of(const json& job) {
  for (const json& volume : array_field(job, {"spec", "template", "spec", "volumes"})) {
    if (text_field(volume, {"name"}) == kJobVolume) return text_field(volume, {"persistentVolumeClaim", "claimName"});
  }
  return "";
}

void own_claim(Client& client, const json& job) {
  const json owner{{"apiVersion", "adaptdl.petuum.com/v1"},
                   {"kind", kAdaptDLJobs.kind},
                   {"name", name_of(job)},
                   {"uid", job.at("metadata").at("uid")}};
  client.patch(path(kPersistentVolumeClaims, text_field(job, {"metadata", "namespace"}), claim_of(job)), Patch::kMerge,
               {{"metadata", {{"ownerReferences", json::array({owner})}}}});
}

std::string Submission::name() const { return text_field(job, {"metadata", "name"}); }
std::string Submission::name_space() const { return text_field(job, {"metadata", "namespace"}); }

Submission make_submission(json job, const SubmissionOptions& options) {
  try {
    if (Quantity::parse(options.storage_size) <= Quantity()) throw Error("must be positive");
  } catch (const Error&) {
    throw UsageError(
        fmt::format("submit: invalid --checkpoint-storage-size '{}': expected an amount of storage such as 10Gi",
                    options.storage_size));
  }
  json& metadata = job["metadata"];
  const std::string own = text_field(metadata, {"namespace"});
  if (options.name_space_asked_for && !own.empty() && own != options.name_space)
    throw UsageError(
        fmt::format("submit: the job file specifies namespace '{}', but --namespace is '{}'", own, options.name_space));
  if (own.empty()) metadata["namespace"] = options.name_space;
  metadata["name"] = job_name(metadata, options);
  set_replicas(job["spec"], options);
  json& pod = job[kPodSpec];
  json& first = pod["containers"][0];
  if (!options.image.empty()) first["image"] = options.image;
  if (!options.arguments.empty()) first["args"] = options.arguments;
  if (!options.pull_secret.empty()) pod["imagePullSecrets"] = json::array({{{"name", options.pull_secret}}});
  const std::string claim = options.claim.empty() ? "adaptdl-pvc-" + make_uuid() : options.claim;
  add_volumes(pod, claim, options.tensorboard.empty() ? "" : "adaptdl-tensorboard-" + options.tensorboard);
  Submission made;
  made.claim = make_claim(claim, job, options);
  // generateName records that the name was generated, as in jobs created by kubectl.
  if (!options.name.empty()) metadata["generateName"] = options.name + '-';
  made.job = std::move(job);
  return made;
}

Submission Submitter::dry_run(const Submission& one) {
  const Query dry{{"dryRun", "All"}, {"fieldValidation", "Strict"}};
  Submission made;
  made.claim = client_.create(path(kPersistentVolumeClaims, one.name_space()), one.claim, dry);
  try {
    made.job = client_.create(path(kAdaptDLJobs, one.name_space()), one.job, dry);
  } catch (const ApiError& error) {
    if (error.conflict()) refuse_taken(one);
    throw;
  }
  return made;
}

void Submitter::check(const std::vector<Submission>& all, const std::function<void(const std::string&)>& notice) {
  for (const Submission& one : all) {
    dry_run(one);
    // The server accepts any pod template in a job. It checks a template only when a pod is created, which this dry run
    // simulates.
    try {
      client_.create(path(kPods, one.name_space()), sample_pod(one.job),
                     {{"dryRun", "All"}, {"fieldValidation", "Strict"}});
    } catch (const ApiError& error) {
      if (error.code() == 422 || error.code() == 400)
        throw Error(fmt::format("the pods of job '{}' would be rejected: {}", one.name(), error.what()));
      // Users who are not permitted to create pods may still submit jobs.
      if (error.code() == 403 &&
          std::string_view(error.what()).find("cannot create resource") == std::string_view::npos)
        notice(fmt::format("the pods of job '{}' would currently be rejected: {}", one.name(), error.what()));
    }
  }
}

std::vector<json> Submitter::create(std::vector<Submission> all, const std::stop_token& stop,
                                    const std::function<void(const std::string&)>& notice) {
  std::vector<json> jobs;
  try {
    for (Submission& one : all) jobs.push_back(create_one(std::move(one), stop));
    if (stop.stop_requested()) throw http::Stopped();
  } catch (...) {
    undo(notice);
    throw;
  }
  const std::scoped_lock lock(mutex_);
  begun_.clear();
  return jobs;
}

void Submitter::begin(const Submission& one) {
  const std::scoped_lock lock(mutex_);
  begun_.push_back(one);
}

json Submitter::create_one(Submission one, const std::stop_token& stop) {
  if (stop.stop_requested()) throw http::Stopped();
  // The claim is created first: a job without its claim would be stuck, but a claim without a job is merely unused.
  begin(one);
  client_.create(path(kPersistentVolumeClaims, one.name_space()), one.claim);
  if (stop.stop_requested()) throw http::Stopped();
  json job;
  try {
    job = client_.create(path(kAdaptDLJobs, one.name_space()), one.job);
  } catch (const ApiError& error) {
    if (error.conflict()) refuse_taken(one);
    throw;
  }
  own_claim(client_, job);
  return job;
}

void Submitter::undo(const std::function<void(const std::string&)>& notice) {
  std::vector<Submission> begun;
  {
    const std::scoped_lock lock(mutex_);
    begun.swap(begun_);
  }
  std::ranges::reverse(begun);
  const auto attempt = [&](const std::string& what, const auto& work) {
    try {
      work();
    } catch (const ApiError& error) {
      if (!error.not_found()) notice(fmt::format("cannot clean up {}: {}", what, error.what()));
    } catch (const Error& error) {
      notice(fmt::format("cannot clean up {}: {}", what, error.what()));
    }
  };
  for (const Submission& one : begun) {
    attempt(fmt::format("job '{}'", one.name()), [&] {
      // If the server's response was lost, the job may or may not exist. A job that has this name but another claim was
      // not created by this object.
      const json job = client_.get(job_path(one));
      if (claim_of(job) != claim_of(one.job)) return;
      client_.remove(job_path(one),
                     {.propagation = Propagation::kBackground, .grace = {}, .uid = job["metadata"]["uid"]});
    });
    attempt(fmt::format("volume claim '{}'", text_field(one.claim, {"metadata", "name"})),
            [&] { client_.remove(claim_path(one)); });
  }
}

}  // namespace adaptdl::kube
