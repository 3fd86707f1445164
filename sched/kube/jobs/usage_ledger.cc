#include "kube/jobs/usage_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "adaptdl/error.h"
#include "base/foreign_json.h"
#include "kube/api/json_fields.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

constexpr const char* kLedgerData = "usage.json";
constexpr std::size_t kMaxUser = 256;  // bytes; longer names are ignored

std::optional<double> number(const json& object, const char* name) {
  const json& value = field(object, {name});
  if (!value.is_number()) return {};
  return std::max(value.get<double>(), 0.0);
}

void add(std::optional<double>& sum, const std::optional<double>& more) {
  if (more) sum = sum.value_or(0) + *more;
}

void set(json& object, const char* name, const std::optional<double>& value) {
  if (value) object[name] = *value;
}

}  // namespace

Month Month::of(Time time) {
  const std::chrono::year_month_day day(std::chrono::floor<std::chrono::days>(time));
  return Month(day.year() / day.month());
}

std::optional<Month> Month::parse(std::string_view text) {
  int year = 0;
  unsigned month = 0;
  const char *begin = text.data(), *end = begin + text.size();
  if (text.size() != 7 || text[4] != '-') return {};
  if (std::from_chars(begin, begin + 4, year).ptr != begin + 4) return {};
  if (std::from_chars(begin + 5, end, month).ptr != end || month < 1 || month > 12 || year < 1970) return {};
  return Month(std::chrono::year(year) / std::chrono::month(month));
}

Time Month::begin() const { return std::chrono::sys_days(month_ / 1); }
Time Month::end() const { return std::chrono::sys_days((month_ + std::chrono::months(1)) / 1); }

std::string Month::to_string() const {
  return fmt::format("{:04}-{:02}", static_cast<int>(month_.year()), static_cast<unsigned>(month_.month()));
}

std::optional<Month> month_of(const json& config_map) {
  constexpr std::size_t kLength = std::string_view("YYYY-MM").size();
  const std::string name = name_of(config_map);
  if (name.size() <= kLength || name[name.size() - kLength - 1] != '-') return {};
  return Month::parse(std::string_view(name).substr(name.size() - kLength));
}

UsageSum& UsageSum::operator+=(const UsageSum& other) {
  jobs += other.jobs;
  gpu_hours += other.gpu_hours;
  add(cost, other.cost);
  return *this;
}

UsageRecord parse_usage_record(const json& job) {
  const std::string user = text_field(job, {"metadata", "annotations", kSubmitterAnnotation});
  return {.uid = text_field(job, {"metadata", "uid"}),
          .name_space = text_field(job, {"metadata", "namespace"}),
          .name = name_of(job),
          .user = user.size() <= kMaxUser ? user : "",
          .usage = parse_usage(job)};
}

UsageLedger UsageLedger::parse(Month month, const json& config_map) {
  UsageLedger ledger(month);
  const json stored = parse_foreign_json(text_field(config_map, {"data", kLedgerData}));
  if (!stored.is_object())
    throw Error(fmt::format("ConfigMap '{}': {} is not valid; correct it, or delete the ConfigMap", name_of(config_map),
                            kLedgerData));
  if (const json& jobs = field(stored, {"jobs"}); jobs.is_object()) {
    for (const auto& [uid, value] : jobs.items()) {
      Job& job = ledger.jobs_[uid];
      job.name_space = text_field(value, {"namespace"});
      job.name = text_field(value, {"name"});
      job.user = text_field(value, {"user"});
      job.gpu_hours_before = number(value, "gpuHoursBefore").value_or(0);
      job.cost_before = number(value, "costBefore");
      job.usage = parse_usage({{"status", {{"usage", field(value, {"usage"})}}}});
      job.deleted = bool_field(value, {"deleted"}, false);
    }
  }
  for (const json& value : array_field(stored, {"deleted"})) {
    UsageSum sum{.user = text_field(value, {"user"}), .name_space = text_field(value, {"namespace"})};
    sum.jobs = std::max(int_field(value, {"jobs"}).value_or(0), 0);
    sum.gpu_hours = number(value, "gpuHours").value_or(0);
    sum.cost = number(value, "cost");
    ledger.deleted_[{sum.user, sum.name_space}] = sum;
  }
  return ledger;
}

json UsageLedger::data() const {
  json jobs = json::object(), deleted = json::array();
  for (const auto& [uid, job] : jobs_) {
    json& value = jobs[uid];
    value = {{"namespace", job.name_space}, {"name", job.name}, {"usage", to_json(job.usage)}};
    if (!job.user.empty()) value["user"] = job.user;
    if (job.gpu_hours_before > 0) value["gpuHoursBefore"] = job.gpu_hours_before;
    set(value, "costBefore", job.cost_before);
    if (job.deleted) value["deleted"] = true;
  }
  for (const auto& [key, sum] : deleted_) {
    json& value = deleted.emplace_back(
        json{{"user", sum.user}, {"namespace", sum.name_space}, {"jobs", sum.jobs}, {"gpuHours", sum.gpu_hours}});
    set(value, "cost", sum.cost);
  }
  const json stored{{"jobs", std::move(jobs)}, {"deleted", std::move(deleted)}};
  return {{kLedgerData, stored.dump(-1, ' ', false, json::error_handler_t::replace)}};
}

bool UsageLedger::is_deleted(const std::string& uid) const {
  const auto found = jobs_.find(uid);
  return found != jobs_.end() && found->second.deleted;
}

UsageSum UsageLedger::used(const Job& job, Time now) const {
  const Time until = std::min(now, month_.end());
  UsageSum sum{.user = job.user, .name_space = job.name_space, .jobs = 1};
  sum.gpu_hours = std::max(job.usage.gpu_hours(until) - job.gpu_hours_before, 0.0);
  if (const auto cost = job.usage.total_cost(until)) sum.cost = std::max(*cost - job.cost_before.value_or(0), 0.0);
  return sum;
}

void UsageLedger::update(const UsageRecord& record, bool deleted) {
  const JobUsage& usage = record.usage;
  const auto found = jobs_.find(record.uid);
  if (found == jobs_.end() && usage.gpu_seconds <= 0 && usage.cost.value_or(0) <= 0 && !usage.since) return;
  Job& job = found == jobs_.end() ? jobs_[record.uid] : found->second;
  job.name_space = record.name_space;
  job.name = record.name;
  if (job.user.empty()) job.user = record.user;
  job.usage = usage;
  job.deleted = deleted;
}

void UsageLedger::record(const std::vector<UsageRecord>& existing, const std::vector<UsageRecord>& deleted, Time now) {
  std::erase_if(jobs_, [&](const auto& entry) {
    const Job& job = entry.second;
    if (!job.deleted) return false;
    const UsageSum sum = used(job, now);
    UsageSum& all = deleted_[{job.user, job.name_space}];
    all.user = job.user;
    all.name_space = job.name_space;
    if (sum.gpu_hours > 0 || sum.cost.value_or(0) > 0) all += sum;
    return true;
  });
  std::set<std::string> known;
  for (const UsageRecord& each : existing) {
    known.insert(each.uid);
    update(each, false);
  }
  for (const UsageRecord& each : deleted) {
    if (known.insert(each.uid).second) update(each, true);
  }
  for (auto& [uid, job] : jobs_) {
    if (known.contains(uid)) continue;
    job.usage.release(now);
    job.deleted = true;
  }
}

// Returns a job's usage at the end of the month, given its stored and its current usage.
JobUsage UsageLedger::until_end(JobUsage stored, JobUsage current) const {
  const Time end = month_.end();
  const bool exact = current.since && *current.since <= end;
  stored.release(end);
  current.release(end);
  if (exact) return current;
  // After the month ended, the job released its resources or received other resources, so its current usage may be too
  // high.
  stored.gpu_seconds = std::min(stored.gpu_seconds, current.gpu_seconds);
  if (stored.cost && current.cost) stored.cost = std::min(*stored.cost, *current.cost);
  return stored;
}

UsageLedger UsageLedger::close(Month later, const std::vector<UsageRecord>& existing,
                               const std::vector<UsageRecord>& deleted) {
  std::map<std::string, const JobUsage*> current;
  for (const std::vector<UsageRecord>* records : {&deleted, &existing}) {
    for (const UsageRecord& each : *records) current[each.uid] = &each.usage;
  }
  UsageLedger next(later);
  for (auto& [uid, job] : jobs_) {
    if (job.deleted) continue;
    const auto found = current.find(uid);
    const JobUsage usage = found == current.end() ? job.usage : *found->second;
    job.usage = until_end(job.usage, usage);
    Job& continued = next.jobs_[uid];
    continued = job;
    continued.usage = usage;
    continued.gpu_hours_before = job.usage.gpu_hours(month_.end());
    continued.cost_before = job.usage.total_cost(month_.end());
  }
  return next;
}

std::vector<UsageSum> UsageLedger::sums(Time now) const {
  std::map<Key, UsageSum> all = deleted_;
  for (const auto& [uid, job] : jobs_) {
    const UsageSum sum = used(job, now);
    if (sum.gpu_hours <= 0 && sum.cost.value_or(0) <= 0) continue;
    UsageSum& total = all[{job.user, job.name_space}];
    total.user = job.user;
    total.name_space = job.name_space;
    total += sum;
  }
  std::vector<UsageSum> result;
  for (auto& [key, sum] : all) {
    if (sum.jobs > 0) result.push_back(std::move(sum));
  }
  return result;
}

}  // namespace adaptdl::kube
