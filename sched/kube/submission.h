// Jobs on their way into a cluster: what is added to those of a job file, and how job and volume are made so that a
// failure on the way leaves neither.
//
// Threading: values and pure functions; Submitter as its client, and its `undo` from any thread.
#pragma once

#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "kube/client.h"
#include "kube/storage_class.h"

namespace adaptdl::kube {

inline constexpr const char* kJobVolume = "adaptdl-pvc";
inline constexpr const char* kTensorBoardVolume = "adaptdl-tensorboard";
inline constexpr const char* kCheckpointPath = "/adaptdl/checkpoint";
inline constexpr const char* kSharePath = "/adaptdl/share";
inline constexpr const char* kTensorBoardPath = "/adaptdl/tensorboard";

struct SubmissionOptions {
  std::string name_space;              // of jobs that name none
  bool name_space_asked_for = false;   // a job that names another is refused
  std::string name;                    // in place of the file's: NAME-xxxxx
  std::string image;                   // of the first container; empty: the file's own
  std::string pull_secret;             // of the image's registry; empty: none
  std::vector<std::string> arguments;  // of the first container, in place of the file's; none: the file's own
  std::optional<int> min_replicas, max_replicas;
  std::string tensorboard;  // its name; empty: none
  std::string claim;        // name of the claim of the job's volume; empty: a random one
  std::string storage_size = "1Gi";
  std::optional<StorageChoice> storage;  // none: it is left to the cluster, and unknown
};

// A job with a name and the claim of its volume, which it is to own.
struct Submission {
  nlohmann::json job, claim;
  std::string name() const;
  std::string name_space() const;
};

// The name of the claim of the job's volume; empty if it has none.
std::string claim_of(const nlohmann::json& job);
// Has the job, as the server returned it, own the claim of its volume. Throws as Client does.
void own_claim(Client& client, const nlohmann::json& job);

// REQUIRES: a job of parse_job_file. Throws UsageError on a wrong name, size or number of replicas.
Submission make_submission(nlohmann::json job, const SubmissionOptions& options);

class Submitter {
 public:
  explicit Submitter(Client& client) : client_(client) {}

  // Has the server look at all of it and make nothing. `notice` gets what may keep a job waiting. Throws Error for what
  // it refuses.
  void check(const std::vector<Submission>& all, const std::function<void(const std::string&)>& notice);
  // What the server makes of one, without making it.
  Submission dry_run(const Submission& one);
  // Makes each claim, then the job, then has the job own the claim. Whatever goes wrong, or at a stop (which throws
  // http::Stopped): takes away all it made; what it cannot take away is told by `notice`. Returns the jobs.
  std::vector<nlohmann::json> create(std::vector<Submission> all, const std::stop_token& stop,
                                     const std::function<void(const std::string&)>& notice);
  // Takes away what a `create` under way has made so far.
  void undo(const std::function<void(const std::string&)>& notice);

 private:
  nlohmann::json create_one(Submission one, const std::stop_token& stop);
  void begin(const Submission& one);

  Client& client_;
  std::mutex mutex_;
  std::vector<Submission> begun_;
};

}  // namespace adaptdl::kube
