// The usage of all jobs in a calendar month, including deleted jobs. The operator stores it in one ConfigMap per month,
// so its size is limited to 1 MiB: about 3,000 jobs that have not been deleted.
//
// The usage of an existing job is that of its status (job_usage.h), less what it had used when the month began. A
// deleted job is added to a sum in two steps, so that repeating a step whose answer was lost counts nothing twice:
// first the job is marked as deleted, and once that is stored, the sum is increased and the job removed.
#pragma once

#include <compare>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kube/client.h"
#include "kube/job_usage.h"
#include "kube/timestamp.h"

namespace adaptdl::kube {

// The annotation with the name of the user who created the job, as known to the API server.
inline constexpr const char* kSubmitterAnnotation = "adaptdl/submitter";

// The label app.kubernetes.io/name of the ConfigMaps.
inline constexpr const char* kUsageLabel = "adaptdl-usage";
inline ListOptions usage_ledgers() {
  return {.label_selector = std::string("app.kubernetes.io/name=") + kUsageLabel, .field_selector = {}};
}

// A calendar month in UTC.
class Month {
 public:
  static Month of(Time time);
  // Parses "2026-11"; returns null if it is not a month.
  static std::optional<Month> parse(std::string_view text);

  Time begin() const;
  Time end() const;  // begin of the next month
  std::string to_string() const;
  friend auto operator<=>(const Month&, const Month&) = default;

 private:
  explicit Month(std::chrono::year_month month) : month_(month) {}
  std::chrono::year_month month_;
};

// Returns the month of a ConfigMap from its name, NAME-YYYY-MM.
std::optional<Month> month_of(const nlohmann::json& config_map);

struct UsageSum {
  std::string user, name_space;  // user: empty if unknown
  int jobs = 0;
  double gpu_hours = 0;
  std::optional<double> cost;

  UsageSum& operator+=(const UsageSum& other);
};

// A job's usage at some time.
struct UsageRecord {
  std::string uid, name_space, name, user;
  JobUsage usage;
};

UsageRecord parse_usage_record(const nlohmann::json& job);

class UsageLedger {
 public:
  explicit UsageLedger(Month month) : month_(month) {}

  // Parses the data of a ConfigMap. Throws Error if it is not a JSON object; missing or invalid fields count as 0.
  static UsageLedger parse(Month month, const nlohmann::json& config_map);
  // Returns the data of a ConfigMap.
  nlohmann::json data() const;

  Month month() const { return month_; }
  // Returns whether the job is marked as deleted.
  bool is_deleted(const std::string& uid) const;

  // Records the usage of all existing jobs, and of jobs that were deleted since the last call and no longer hold
  // anything. A job in neither list was deleted as well, and is charged until `now`. REQUIRES: the ledger is stored in
  // its current state.
  void record(const std::vector<UsageRecord>& existing, const std::vector<UsageRecord>& deleted, Time now);

  // Closes this month and returns the ledger of a later one, in which the jobs have used nothing yet. What a job used
  // between its last record and the end of this month counts for the later one, unless the job still holds it.
  UsageLedger close(Month later, const std::vector<UsageRecord>& existing, const std::vector<UsageRecord>& deleted);

  // Returns the usage until `now`, or until the end of the month, by user and namespace.
  std::vector<UsageSum> sums(Time now) const;

 private:
  struct Job {
    std::string name_space, name, user;
    double gpu_hours_before = 0;  // until the month began
    std::optional<double> cost_before;
    JobUsage usage;
    bool deleted = false;
  };
  using Key = std::pair<std::string, std::string>;  // user and namespace

  UsageSum used(const Job& job, Time now) const;
  JobUsage until_end(JobUsage stored, JobUsage current) const;
  void update(const UsageRecord& record, bool deleted);

  Month month_;
  std::map<std::string, Job> jobs_;  // by uid
  std::map<Key, UsageSum> deleted_;
};

}  // namespace adaptdl::kube
