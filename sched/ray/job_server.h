// A client of Ray's job server (https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html).
//
// Threading: every member may be called from any thread. Errors: unless stated otherwise, all members throw Error, with
// the reason and the server's URL, if the server cannot be reached, refuses the request, or does not answer as a job
// server does.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "http/http.h"
#include "ray/access.h"

namespace adaptdl::ray {

// A job, as the server describes it.
struct Job {
  enum class Status { kPending, kRunning, kStopped, kSucceeded, kFailed };
  std::string id;  // the submission id
  Status status = Status::kPending;
  std::string message;      // describes the status; may be empty
  std::string package_uri;  // the package of the job's working directory; empty if the job has none
  std::map<std::string, std::string> metadata;
  std::optional<std::chrono::system_clock::time_point> start, end;
  std::optional<int> exit_code;  // the entrypoint's exit code, once it has ended

  bool ended() const { return status != Status::kPending && status != Status::kRunning; }
};

struct Submission {
  std::string id;
  std::string entrypoint;
  std::string package_uri;  // the working directory, from upload()
  std::map<std::string, std::string> environment;
  std::map<std::string, std::string> metadata;
  // Further fields of Ray's runtime environment. `environment` overrides variables in its "env_vars".
  nlohmann::json runtime_env = nlohmann::json::object();
};

class JobServer {
 public:
  // Requests that change nothing are repeated for up to `patience` while the server cannot be reached.
  explicit JobServer(Access access, std::chrono::seconds patience = std::chrono::seconds(0));

  // Throws Error if Ray's version is older than the oldest supported one.
  void check_version();

  // Uploads a zip file, unless the server already has one with that name, and returns its URI. `name` must depend on
  // the content. `progress` is called with the number of bytes sent so far.
  std::string upload(const std::string& name, const std::filesystem::path& zip, const std::stop_token& stop,
                     const std::function<void(std::uint64_t)>& progress);

  // Uploads a small package from memory. A job reads it from Ray's key-value store, under the key "gcs://NAME".
  void put(const std::string& name, std::string bytes);

  // Starts a job. Throws UsageError if a job with that id exists.
  void submit(const Submission& submission);

  // Returns all jobs that were submitted to the server, newest last.
  std::vector<Job> list();
  // Returns the job with that id, or nullopt if it does not exist.
  std::optional<Job> find(const std::string& id);
  // Returns the job's complete output so far.
  std::string logs(const std::string& id);
  // Asks the job to stop. Returns false if it has already ended.
  bool stop(const std::string& id);
  // Waits until the job has ended, `limit` has passed, or a stop is requested. Returns the job as last seen, or nullopt
  // if it does not exist.
  std::optional<Job> wait_for_end(const std::string& id, std::optional<std::chrono::milliseconds> limit = {},
                                  const std::stop_token& stop = {});
  // Removes the record of a job that has ended; its log file remains on the head node. If the job ended only recently,
  // first waits for two seconds, because the server would restore the record.
  void remove(const std::string& id);

  const std::string& url() const { return access_.url; }

 private:
  http::Response call(const char* method, const std::string& path, const nlohmann::json* body = nullptr);
  http::Response send(const http::Request& request);
  nlohmann::json expect(const http::Response& response, const std::string& what) const;

  const Access access_;
  const std::chrono::seconds patience_;
};

}  // namespace adaptdl::ray
