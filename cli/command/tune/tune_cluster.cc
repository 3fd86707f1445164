#include "command/tune/tune_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "command/base/cluster_options.h"
#include "command/base/numbers.h"
#include "image/registry/reference.h"
#include "kube/api/file.h"
#include "kube/api/json_fields.h"
#include "kube/api/names.h"
#include "kube/api/quantity.h"
#include "kube/jobs/job_file.h"
#include "kube/jobs/storage_class.h"
#include "kube/jobs/submission.h"
#include "terminal/dump_json.h"
#include "terminal/print.h"

namespace adaptdl::cli {
namespace {

namespace tune = sched::tune;
using nlohmann::json;

constexpr int kDefaultParallel = 8;
constexpr char kDefaultJobFile[] = "adaptdljob.yaml";
constexpr char kDefaultStorageSize[] = "1Gi";

std::optional<int> replicas(const std::string& text, const char* option, int min) {
  if (text.empty()) return {};
  return parse_number<int>(text, fmt::format("tune: {}", option), min, 1'000'000, "an integer");
}

void check_storage_size(const std::string& text) {
  try {
    if (kube::Quantity::parse(text) > kube::Quantity()) return;
  } catch (const Error&) {
    // The error is thrown below, where a size of 0 is also rejected.
  }
  throw UsageError(
      fmt::format("tune: invalid --checkpoint-storage-size '{}': expected an amount of storage, such as 10Gi", text));
}

json read_job(const TuneOptions& options) {
  const std::string file = options.job_file.empty() ? kDefaultJobFile : options.job_file;
  const auto text = kube::read_if_there(file, "the job file");
  if (!text)
    throw UsageError(
        fmt::format("tune: job file '{}' not found; --cluster requires a job file with a replica's image and resources "
                    "(--jobfile FILE)",
                    file));
  const auto jobs = kube::parse_job_file(*text, file, {.name = false, .image = options.image.empty()});
  if (jobs.size() != 1) throw UsageError(fmt::format("tune: {}: expected one AdaptDLJob, got {}", file, jobs.size()));
  return jobs.front();
}

void set_replicas(json& spec, const TuneOptions& options) {
  if (const auto min = replicas(options.min_replicas, "--min-replicas", 0)) spec["minReplicas"] = *min;
  if (const auto max = replicas(options.max_replicas, "--max-replicas", 1)) spec["maxReplicas"] = *max;
  const int min = kube::int_field(spec, {"minReplicas"}).value_or(0);
  const std::optional<int> max = kube::int_field(spec, {"maxReplicas"});
  if (max && min > *max)
    throw UsageError(
        fmt::format("tune: the minimum number of replicas ({}) must not be greater than the maximum ({})", min, *max));
}

void set_container(json& pod, const TuneOptions& options) {
  json& container = pod["containers"][0];
  if (!options.image.empty()) {
    image::Reference::parse(options.image);
    container["image"] = options.image;
  }
  if (const char* const secret = std::getenv("ADAPTDL_SUBMIT_REPO_CREDS"); secret != nullptr && *secret != '\0')
    pod["imagePullSecrets"] = json::array({{{"name", secret}}});
  if (options.checkpoint_every.empty()) return;
  env::parse_duration(options.checkpoint_every, "tune: --checkpoint-every");
  json& variables = container["env"];
  if (!variables.is_array()) variables = json::array();
  variables.push_back({{"name", "ADAPTDL_CHECKPOINT_EVERY"}, {"value", options.checkpoint_every}});
}

using NamedOptions = std::vector<std::pair<const char*, const std::string*>>;

NamedOptions options_of_jobs(const TuneOptions& options) {
  return {{"--jobfile", &options.job_file},
          {"--image", &options.image},
          {"--namespace", &options.cluster_options.name_space},
          {"--context", &options.cluster_options.context},
          {"--checkpoint-storage-class", &options.storage_class},
          {"--checkpoint-storage-size", &options.storage_size}};
}

void refuse_local_options(const TuneOptions& options) {
  for (const auto& [name, value] :
       {std::pair("--devices", &options.devices), {"--device-kind", &options.device_kind}, {"--share", &options.share}})
    if (!value->empty())
      throw UsageError(fmt::format("tune: {} cannot be used with --cluster; it applies only to local trials", name));
  if (options.parallel == "auto") throw UsageError("tune: with --cluster, --parallel must be a number");
}

tune::TrialJobPlan job_plan(const TunePlan& plan) {
  const tune::ClusterSettings& cluster = *plan.settings.cluster;
  tune::TrialJobPlan jobs;
  jobs.study = plan.study;
  jobs.study_id = cluster.study_id;
  jobs.job = json::parse(cluster.job);
  jobs.submission.name_space = cluster.name_space;
  jobs.submission.storage_size = cluster.storage_size;
  jobs.command = plan.settings.command;
  return jobs;
}

// Throws UsageError if a job that does not belong to the study has the name of one of its trials.
void check_names(const TunePlan& plan, kube::Client& client) {
  const std::string& name_space = plan.settings.cluster->name_space;
  client.list(kube::path(kube::kAdaptDLJobs, name_space), {}, [&](json&& job) {
    const std::string name = kube::name_of(job);
    if (!name.starts_with(plan.study + '-') ||
        kube::text_field(job, {"metadata", "labels", tune::kStudyIdLabel}) == plan.settings.cluster->study_id)
      return;
    const std::string number = name.substr(plan.study.size() + 1);
    if (!number.empty() && std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; }))
      throw UsageError(
          fmt::format("tune: job '{0}' in namespace '{1}' has the name of a trial but does not belong to "
                      "study '{2}'; delete it with `adaptdl delete -n {1} {0}`, or use another study name",
                      name, name_space, plan.study));
  });
}

}  // namespace

void set_cluster_settings(TunePlan& plan, const TuneOptions& options) {
  refuse_local_options(options);
  tune::check_job_names(plan.study);
  tune::ClusterSettings cluster;
  json job = read_job(options);
  set_replicas(job["spec"], options);
  set_container(job["spec"]["template"]["spec"], options);
  const kube::Access access = require_cluster(options.cluster_options);
  const std::string own = kube::text_field(job, {"metadata", "namespace"});
  const std::string& given = options.cluster_options.name_space;
  if (!own.empty() && !given.empty() && own != given)
    throw UsageError(fmt::format("tune: the job file specifies namespace '{}', but --namespace is '{}'", own, given));
  // A service account has no kubeconfig, and therefore no context to choose.
  cluster.context = access.context == "in-cluster" ? "" : access.context;
  cluster.name_space = own.empty() ? access.name_space : own;
  cluster.study_id = kube::generate_name("") + kube::generate_name("");
  job["metadata"].erase("name");
  job["metadata"].erase("generateName");
  cluster.job = dump_json(job, -1);
  cluster.storage_class = options.storage_class;
  cluster.storage_size = options.storage_size.empty() ? kDefaultStorageSize : options.storage_size;
  check_storage_size(cluster.storage_size);
  plan.settings.checkpoint_every = options.checkpoint_every;
  plan.settings.max_replicas = 1;  // unused: the operator decides, within the job's bounds
  plan.settings.parallel = options.parallel.empty() ? kDefaultParallel
                                                    : parse_number<int>(options.parallel, "tune: --parallel", 1,
                                                                        kMaxRunReplicas, "an integer");
  plan.settings.cluster = std::move(cluster);
}

std::string job_study_name(std::string name) {
  for (char& c : name) {
    const auto byte = static_cast<unsigned char>(c);
    c = std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  const std::size_t begin = name.find_first_not_of('-');
  return begin == std::string::npos ? "study" : name.substr(begin);
}

void refuse_cluster_options(const TuneOptions& options) {
  for (const auto& [name, value] : options_of_jobs(options))
    if (!value->empty()) throw UsageError(fmt::format("tune: {} requires --cluster", name));
}

void check_cluster_resume(const TuneOptions& options) {
  refuse_local_options(options);
  NamedOptions fixed = options_of_jobs(options);
  fixed.insert(fixed.end(), {{"--min-replicas", &options.min_replicas},
                             {"--max-replicas", &options.max_replicas},
                             {"--checkpoint-every", &options.checkpoint_every}});
  for (const auto& [name, value] : fixed)
    if (!value->empty())
      throw UsageError(fmt::format("tune: --resume cannot change {0} for a study in a cluster; omit {0}", name));
}

std::unique_ptr<kube::Client> cluster_client(const TunePlan& plan) {
  const tune::ClusterSettings& cluster = *plan.settings.cluster;
  ClusterOptions options;
  options.context = cluster.context;
  options.name_space = cluster.name_space;
  const kube::Client::Options limits{.timeout = std::chrono::seconds(20)};
  return std::make_unique<kube::Client>(require_cluster(options), limits);
}

void check_cluster(const TunePlan& plan, kube::Client& client) {
  check_names(plan, client);
  tune::TrialJobPlan jobs = job_plan(plan);
  jobs.submission.storage = kube::choose_job_storage(client, plan.settings.cluster->storage_class);
  kube::Submitter(client).check({tune::make_trial_job(jobs, 0, plan.settings.space.fixed)},
                                [](const std::string& text) { print_notice("{}", text); });
}

std::unique_ptr<tune::ClusterTrialRunner> make_cluster_runner(const TunePlan& plan, kube::Client& client,
                                                              const tune::StudyDirectory& directory,
                                                              std::function<void(std::string_view)> notice) {
  tune::ClusterTrialPlan trials;
  trials.job = job_plan(plan);
  trials.job.submission.storage = kube::choose_job_storage(client, plan.settings.cluster->storage_class);
  trials.directory = directory.path();
  trials.metric = plan.settings.metric;
  trials.notice = std::move(notice);
  return std::make_unique<tune::ClusterTrialRunner>(client, std::move(trials));
}

}  // namespace adaptdl::cli
