// Stores what a supervisor knows about its jobs, and determines the supervisor's current answers.
//
// Threading: all methods may be called from any thread.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "supervisor/supervisor.h"

namespace adaptdl::sched {

struct Answer {
  int status = 200;
  std::string body;   // JSON if the status is 200, otherwise one line with the error
  std::string allow;  // allowed methods, for status 405
  std::string type;   // content type; empty if it follows from the status
};

// A request that may have to wait for its answer.
struct Poll {
  enum class Kind { kDiscover, kGeneration };
  Kind kind = Kind::kDiscover;
  std::string job_id;
  int number = 0;  // kDiscover: the group; kGeneration: the last generation that the client knows
};

class JobBoard {
 public:
  // Sets whether requests for jobs that were not added are refused. If they are not refused, the clients are asked to
  // retry.
  void set_all_jobs_known(bool known);
  void add(const std::string& job_id, std::optional<std::string> token);
  void remove(const std::string& job_id);
  void set_addresses(const std::string& job_id, int group, std::vector<std::string> addresses);
  void set_generation(const std::string& job_id, std::optional<Generation> generation);

  // Replaces the hints. A value that is not an object clears them.
  void set_hints(const std::string& job_id, nlohmann::json hints);
  // Merges valid hints into the job's hints. Returns whether the job's hints have changed.
  bool merge_hints(const std::string& job_id, const nlohmann::json& hints);
  // Uses a report's `progress` and `targetProgress` as the job's hints, unless the job sends its own hints, which count
  // progress in another unit. Returns whether the job's hints have changed.
  bool take_progress(const std::string& job_id, const nlohmann::json& report);
  nlohmann::json hints(const std::string& job_id) const;

  // Returns the answer that refuses a request for the job, or nullopt if the request is accepted. A request is refused
  // if the job does not exist or if the request has a wrong token. A request without a token for a job that has one is
  // refused only if `needs_token` returns true.
  std::optional<Answer> refusal(const std::string& job_id, std::string_view token,
                                const std::function<bool()>& needs_token) const;
  // Returns nullopt if there is no answer yet.
  std::optional<Answer> answer(const Poll& poll) const;

 private:
  struct Job {
    std::optional<std::string> token;
    int group = -1;
    std::vector<std::string> addresses;
    std::optional<Generation> generation;
    nlohmann::json hints = nlohmann::json::object();
    bool reported_progress = false;  // whether the hints are from take_progress()
  };

  Answer unknown(const std::string& job_id) const;

  mutable std::mutex mutex_;
  bool all_jobs_known_ = true;
  std::map<std::string, Job, std::less<>> jobs_;
};

// Returns the answer that tells the client to repeat the request, because there is no result yet.
Answer ask_again();

}  // namespace adaptdl::sched
