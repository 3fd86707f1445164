#include "operator/validator/validator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <utility>

#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "base/base64.h"
#include "base/foreign_json.h"
#include "kube/api/json_fields.h"
#include "operator/base/brief_calls.h"

namespace adaptdl::sched {
namespace {

using kube::text_field;
using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kCheckInterval{10}, kRetryInterval{2};
constexpr seconds kMinDrainTime{3}, kMaxDrainTime{9};
constexpr milliseconds kDrainCheck{100};
constexpr const char* kCertificateKey = "tls.crt";
constexpr const char* kPrivateKey = "tls.key";
// The API server has supported fieldValidation=Strict since this minor version of Kubernetes 1.
constexpr int kStrictSince = 25;
// The names of the operator's webhooks in the configurations, and the path of the second one.
constexpr std::array kWebhooks = {"validator.adaptdl.petuum.com", "submitter.adaptdl.petuum.com"};
constexpr const char* kSubmitterPath = "/submitter";

std::string decoded(const json& object, std::initializer_list<const char*> path) {
  return decode_base64(text_field(object, path)).value_or("");
}

bool is_ours(const json& webhook) {
  return std::ranges::find(kWebhooks, text_field(webhook, {"name"})) != kWebhooks.end();
}

std::string bundle_of(const json& configuration) {
  for (const json& webhook : kube::array_field(configuration, {"webhooks"})) {
    if (is_ours(webhook)) return decoded(webhook, {"clientConfig", "caBundle"});
  }
  return "";
}

// Returns whether the operator changes the pods of jobs, so that some of their fields do not come from the job.
bool patches(const PodSettings& pods) {
  return !pods.pod_patch.empty() || !pods.container_patch.empty() || !pods.resources.empty();
}

std::string to_text(const json& answer) { return answer.dump(-1, ' ', false, json::error_handler_t::replace); }

// A minor version may be followed by a plus sign, as in "27+".
int minor_version(const json& version) {
  const std::string text = text_field(version, {"minor"});
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

Validator::Validator(kube::Access access, const PodSettings& pods, ValidatorSettings settings)
    : settings_(std::move(settings)),
      client_(std::move(access), kBriefCalls),
      server_(settings_.address, settings_.port,
              [this](const std::string& path, const std::string& body) { return answer(path, body); }) {
  review_.pods = pods;
  review_.image_fault = settings_.image_fault;
  review_.dry_run = [this](const std::string& name_space, const json& pod) { return dry_run(name_space, pod); };
  try_pass();
  log::info(fmt::format("validator: port {}", server_.port()));
  renewer_ = std::jthread([this](std::stop_token stop) { renew_certificate(stop); });
}

Validator::~Validator() = default;

void Validator::drain() {
  server_.drain();
  std::this_thread::sleep_for(kMinDrainTime);
  for (milliseconds waited = kMinDrainTime; server_.is_answering() && waited < kMaxDrainTime; waited += kDrainCheck)
    std::this_thread::sleep_for(kDrainCheck);
}

WebhookServer::Answer Validator::answer(const std::string& path, const std::string& body) const {
  if (const std::string fault = reading_fault(body); !fault.empty()) {
    // If the webhooks fail open, an error would cause the job to be accepted without a check.
    const ReviewSummary summary = summarize_review(body);
    if (summary.uid.empty()) return {413, fault + '\n'};
    ReviewVerdict verdict;
    if (!summary.being_deleted) verdict.faults = {fault};
    return {200, to_text(review_answer({{"uid", summary.uid}}, verdict))};
  }
  const json parsed = parse_foreign_json(body);
  const json& request = kube::field(parsed, {"request"});
  if (text_field(request, {"uid"}).empty() || !kube::field(request, {"object"}).is_object())
    return {400, "expected an AdmissionReview for an AdaptDLJob\n"};
  if (path == kSubmitterPath) return {200, to_text(patch_answer(request, submitter_patch(request)))};
  try {
    const ReviewVerdict verdict = review_job(request, review_);
    return {200, to_text(review_answer(request, verdict))};
  } catch (const std::exception& error) {
    log::warn(fmt::format("cannot check job '{}/{}': {}", text_field(request, {"namespace"}),
                          kube::name_of(kube::field(request, {"object"})), error.what()));
    return {500, fmt::format("cannot check the job: {}\n", error.what())};
  }
}

json Validator::dry_run(const std::string& name_space, const json& pod) {
  kube::Query query{{"dryRun", "All"}};
  if (!review_.compare_fields) query.emplace_back("fieldValidation", "Strict");
  return client_.create(kube::path(kube::kPods, name_space), pod, query);
}

void Validator::renew_certificate(std::stop_token stop) {
  while (!stop.stop_requested()) {
    const seconds pause = try_pass() ? kCheckInterval : kRetryInterval;
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, stop, pause, [] { return false; });
  }
}

bool Validator::try_pass() {
  try {
    pass();
    last_error_.clear();
    return true;
  } catch (const Error& error) {
    const auto* refused = dynamic_cast<const kube::ApiError*>(&error);
    if (refused != nullptr && refused->conflict()) return false;  // another operator was faster
    if (std::exchange(last_error_, error.what()) != error.what())
      log::warn(fmt::format("cannot set up the validator's certificate: {}", error.what()));
    return false;
  }
}

// Performs the next steps of the renewal.
void Validator::pass() {
  if (!version_known_) {
    review_.compare_fields = minor_version(client_.get("/version")) < kStrictSince || patches(review_.pods);
    version_known_ = true;
  }
  json validating = configuration(kube::kValidatingWebhookConfigurations), mutating = mutating_configuration();
  const std::string bundle = bundle_of(validating);
  const ServingCertificate stored = stored_certificate(bundle);
  const auto now = CertificateRules::Clock::now();
  const CertificateRules::Step step = rules_.next(stored, bundle, now, std::chrono::system_clock::now());
  if (const std::string& wanted = step.bundle.value_or(bundle); !mutating.is_null() && bundle_of(mutating) != wanted)
    write_bundle(kube::kMutatingWebhookConfigurations, std::move(mutating), wanted);
  if (step.bundle) write_bundle(kube::kValidatingWebhookConfigurations, std::move(validating), *step.bundle);
  if (!step.serve) return;
  server_.serve(stored);
  rules_.set_served(stored);
}

json Validator::configuration(const kube::Resource& kind) {
  try {
    return client_.get(kube::path(kind, "", settings_.name));
  } catch (const kube::ApiError& error) {
    if (!error.not_found()) throw;
    throw Error(
        fmt::format("{} '{}' not found; apply the output of `adaptdl operator manifests`, or run the operator without "
                    "--validator",
                    kind.kind, settings_.name));
  }
}

// Returns null if the object does not exist, which is the case with older manifests, or if the operator is not
// permitted to read it. Jobs are checked nevertheless.
json Validator::mutating_configuration() {
  try {
    json object = client_.get(kube::path(kube::kMutatingWebhookConfigurations, "", settings_.name));
    submitters_known_ = true;
    return object;
  } catch (const kube::ApiError& error) {
    if (!error.not_found() && error.code() != 403) throw;
    if (std::exchange(submitters_known_, false))
      log::warn(
          fmt::format("the users who create jobs are not recorded: {}; apply the output of `adaptdl operator "
                      "manifests`",
                      error.what()));
    return nullptr;
  }
}

// Returns the certificate in the Secret. Creates or renews the certificate if necessary.
ServingCertificate Validator::stored_certificate(const std::string& bundle) {
  const std::string path = kube::path(kube::kSecrets, settings_.name_space, settings_.name);
  json secret;
  try {
    secret = client_.get(path);
  } catch (const kube::ApiError& error) {
    if (!error.not_found()) throw;
  }
  const auto now = std::chrono::system_clock::now();
  ServingCertificate pair{first_certificate(decoded(secret, {"data", kCertificateKey})),
                          decoded(secret, {"data", kPrivateKey})};
  if (!rules_.renew(pair, bundle, now, settings_.certificate_lifetime)) return pair;
  // The API server connects to the first name.
  const std::string host = fmt::format("{}.{}.svc", settings_.name, settings_.name_space);
  pair = create_serving_certificate({host, host + ".cluster.local"}, now, settings_.certificate_lifetime);
  const json data{{kCertificateKey, encode_base64(pair.certificate)}, {kPrivateKey, encode_base64(pair.key)}};
  if (secret.is_null()) {
    client_.create(kube::path(kube::kSecrets, settings_.name_space),
                   {{"apiVersion", "v1"},
                    {"kind", "Secret"},
                    {"metadata", {{"name", settings_.name}, {"namespace", settings_.name_space}}},
                    {"type", "kubernetes.io/tls"},
                    {"data", data}});
  } else {
    secret["data"] = data;
    client_.replace(path, secret);
  }
  log::info("created a new certificate for the validator");
  return pair;
}

void Validator::write_bundle(const kube::Resource& kind, json configuration, const std::string& bundle) {
  for (json& webhook : configuration["webhooks"]) {
    if (is_ours(webhook)) webhook["clientConfig"]["caBundle"] = encode_base64(bundle);
  }
  client_.replace(kube::path(kind, "", settings_.name), configuration);
}

}  // namespace adaptdl::sched
