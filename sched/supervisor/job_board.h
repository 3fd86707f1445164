// What a supervisor knows of its jobs, and what it would answer right now.
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
  std::string body;   // JSON if the status is 200, else one line that says what is wrong
  std::string allow;  // of a 405: the methods there are
  std::string type;   // content type; empty: as above
};

// A question that may have to wait for its answer.
struct Poll {
  enum class Kind { kDiscover, kGeneration };
  Kind kind = Kind::kDiscover;
  std::string job_id;
  int number = 0;  // kDiscover: the group; kGeneration: the one after which
};

class JobBoard {
 public:
  // Sets whether requests for jobs that were not added are refused. If not, they are asked to retry.
  void set_all_jobs_known(bool known);
  void add(const std::string& job_id, std::optional<std::string> token);
  void remove(const std::string& job_id);
  void set_addresses(const std::string& job_id, int group, std::vector<std::string> addresses);
  void set_generation(const std::string& job_id, std::optional<Generation> generation);

  // Replaces the hints. Values other than objects clear them.
  void set_hints(const std::string& job_id, nlohmann::json hints);
  // Merges hints that were checked. Returns whether that changed anything.
  bool merge_hints(const std::string& job_id, const nlohmann::json& hints);
  // Makes the `progress` and `targetProgress` of a report the job's hints, unless the job sends hints of its own: those
  // count progress in another unit. Returns whether that changed anything.
  bool take_progress(const std::string& job_id, const nlohmann::json& report);
  nlohmann::json hints(const std::string& job_id) const;

  // Returns the refusal of a request for the job, or none. A request is refused if the job does not exist, or if it has
  // a token and the request's differs; an empty one is refused only if `needs_token` returns true.
  std::optional<Answer> refusal(const std::string& job_id, std::string_view token,
                                const std::function<bool()>& needs_token) const;
  // None: not yet.
  std::optional<Answer> answer(const Poll& poll) const;

 private:
  struct Job {
    std::optional<std::string> token;
    int group = -1;
    std::vector<std::string> addresses;
    std::optional<Generation> generation;
    nlohmann::json hints = nlohmann::json::object();
    bool reported_progress = false;  // the hints are those of take_progress()
  };

  Answer unknown(const std::string& job_id) const;

  mutable std::mutex mutex_;
  bool all_jobs_known_ = true;
  std::map<std::string, Job, std::less<>> jobs_;
};

// That the request has to be repeated: nothing came up in its time.
Answer ask_again();

}  // namespace adaptdl::sched
