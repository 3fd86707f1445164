// The usage of all jobs in a calendar month, including deleted jobs. The operator stores each month in a ConfigMap,
// which limits the size to 1 MiB: enough for about 3,000 jobs that have not been deleted.
//
// An existing job's usage is the usage in its status (job_usage.h) minus its usage before the month began. A deleted
// job is added to a sum in two steps: the job is first marked as deleted, and once the mark is stored, the sum is
// increased and the job is removed. If the response to a step is lost, the step can therefore be repeated without
// counting anything twice.
#pragma once

#include <compare>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kube/api/client.h"
#include "kube/api/timestamp.h"
#include "kube/jobs/job_usage.h"

namespace adaptdl::kube {

// The annotation that contains the name of the user who created the job, as authenticated by the API server.
inline constexpr const char* kSubmitterAnnotation = "adaptdl/submitter";

// The value of the ConfigMaps' label app.kubernetes.io/name.
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
  Time end() const;  // the beginning of the next month
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

// A job's usage at a point in time.
struct UsageRecord {
  std::string uid, name_space, name, user;
  JobUsage usage;
};

UsageRecord parse_usage_record(const nlohmann::json& job);

class UsageLedger {
 public:
  explicit UsageLedger(Month month) : month_(month) {}

  // Parses the data of a ConfigMap. Throws Error if it is not a JSON object. Missing or invalid numbers are read as 0,
  // except costs, which are then unknown.
  static UsageLedger parse(Month month, const nlohmann::json& config_map);
  // Returns the data to store in a ConfigMap.
  nlohmann::json data() const;

  Month month() const { return month_; }
  // Returns whether the job is marked as deleted.
  bool is_deleted(const std::string& uid) const;

  // Records the usage of all existing jobs, and of jobs that were deleted since the last call and no longer hold
  // anything. A recorded job in neither list has been deleted as well, and is charged until `now`. REQUIRES: the
  // ledger's current state is stored.
  void record(const std::vector<UsageRecord>& existing, const std::vector<UsageRecord>& deleted, Time now);

  // Closes this month and returns the ledger for a later month, in which the jobs have used nothing yet. If a job still
  // holds the resources that it held at the end of this month, its usage until then is exact. Otherwise, the usage
  // since its last record is estimated, and any difference is charged to the later month.
  UsageLedger close(Month later, const std::vector<UsageRecord>& existing, const std::vector<UsageRecord>& deleted);

  // Returns the usage until `now` or the end of the month, whichever is earlier, by user and namespace.
  std::vector<UsageSum> sums(Time now) const;

 private:
  struct Job {
    std::string name_space, name, user;
    double gpu_hours_before = 0;  // used before the month began
    std::optional<double> cost_before;
    JobUsage usage;
    bool deleted = false;
  };
  using Key = std::pair<std::string, std::string>;  // user and namespace

  UsageSum used(const Job& job, Time now) const;
  JobUsage until_end(JobUsage stored, JobUsage current) const;
  void update(const UsageRecord& record, bool deleted);

  Month month_;
  std::map<std::string, Job> jobs_;  // by uid of the job
  std::map<Key, UsageSum> deleted_;
};

}  // namespace adaptdl::kube
