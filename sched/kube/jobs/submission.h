// Submits jobs to a cluster: completes the jobs in a job file, and creates each job together with its volume, so that
// neither is left behind if the creation fails.
//
// Threading: a Submitter is used by one thread at a time, but `undo` may be called from any thread.
#pragma once

#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "kube/api/client.h"
#include "kube/jobs/storage_class.h"

namespace adaptdl::kube {

inline constexpr const char* kJobVolume = "adaptdl-pvc";
inline constexpr const char* kTensorBoardVolume = "adaptdl-tensorboard";
inline constexpr const char* kCheckpointPath = "/adaptdl/checkpoint";
inline constexpr const char* kSharePath = "/adaptdl/share";
inline constexpr const char* kTensorBoardPath = "/adaptdl/tensorboard";

struct SubmissionOptions {
  std::string name_space;              // for jobs without a namespace
  bool name_space_asked_for = false;   // if true, a job with another namespace is rejected
  std::string name;                    // if not empty, the job is named NAME-xxxxx
  std::string image;                   // for the first container; empty: the image in the file
  std::string pull_secret;             // for the image's registry; empty: none
  std::vector<std::string> arguments;  // for the first container; empty: the arguments in the file
  std::optional<int> min_replicas, max_replicas;
  std::string tensorboard;  // name of a TensorBoard; empty: none
  std::string claim;        // name of the job's volume claim; empty: a random one
  std::string storage_size = "1Gi";
  std::optional<StorageChoice> storage;  // null: the cluster's default class
};

// A job with a name, and the volume claim that the job must own.
struct Submission {
  nlohmann::json job, claim;
  std::string name() const;
  std::string name_space() const;
};

// Returns the name of the job's volume claim; empty if the job has none.
std::string claim_of(const nlohmann::json& job);
// Makes the job, as the server returned it, the owner of its volume claim. Throws the same errors as Client.
void own_claim(Client& client, const nlohmann::json& job);

// Completes a job from parse_job_file. Throws UsageError for an invalid name, size or number of replicas, or if
// `name_space_asked_for` rejects the job's namespace.
Submission make_submission(nlohmann::json job, const SubmissionOptions& options);

class Submitter {
 public:
  explicit Submitter(Client& client) : client_(client) {}

  // Checks all submissions on the server without creating anything, and throws Error if the server rejects one.
  // Problems that may keep a job waiting are reported to `notice`.
  void check(const std::vector<Submission>& all, const std::function<void(const std::string&)>& notice);
  // Returns the objects that the server would create for a submission, without creating them.
  Submission dry_run(const Submission& one);
  // For each submission, creates the claim and then the job, and makes the job own the claim. Returns the jobs. On an
  // error or a stop (http::Stopped), deletes everything that it has created, and reports to `notice` the objects that
  // could not be deleted.
  std::vector<nlohmann::json> create(std::vector<Submission> all, const std::stop_token& stop,
                                     const std::function<void(const std::string&)>& notice);
  // Deletes the objects that the `create` in progress has created so far.
  void undo(const std::function<void(const std::string&)>& notice);

 private:
  nlohmann::json create_one(Submission one, const std::stop_token& stop);
  void begin(const Submission& one);

  Client& client_;
  std::mutex mutex_;
  std::vector<Submission> begun_;
};

}  // namespace adaptdl::kube
