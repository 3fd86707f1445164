#include "supervisor/job_board.h"

#include <fmt/format.h>

#include <utility>

#include "protocol/secret.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;

}  // namespace

Answer JobBoard::unknown(const std::string& job_id) const {
  if (!all_jobs_known_) return ask_again();
  const std::string quoted = json(job_id).dump(-1, ' ', true, json::error_handler_t::replace);
  return {404, fmt::format("job '{}' not found", std::string_view(quoted).substr(1, quoted.size() - 2)), ""};
}

void JobBoard::set_all_jobs_known(bool known) {
  const std::lock_guard lock(mutex_);
  all_jobs_known_ = known;
}

void JobBoard::add(const std::string& job_id, std::optional<std::string> token) {
  const std::lock_guard lock(mutex_);
  jobs_[job_id].token = std::move(token);
}

void JobBoard::remove(const std::string& job_id) {
  const std::lock_guard lock(mutex_);
  jobs_.erase(job_id);
}

void JobBoard::set_addresses(const std::string& job_id, int group, std::vector<std::string> addresses) {
  const std::lock_guard lock(mutex_);
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end()) return;
  job->second.group = group;
  job->second.addresses = std::move(addresses);
}

void JobBoard::set_generation(const std::string& job_id, std::optional<Generation> generation) {
  const std::lock_guard lock(mutex_);
  if (const auto job = jobs_.find(job_id); job != jobs_.end()) job->second.generation = std::move(generation);
}

void JobBoard::set_hints(const std::string& job_id, json hints) {
  const std::lock_guard lock(mutex_);
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end()) return;
  job->second.hints = hints.is_object() ? std::move(hints) : json::object();
  job->second.reported_progress = job->second.hints.size() == 2 && job->second.hints.contains("progress") &&
                                  job->second.hints.contains("targetProgress");
}

bool JobBoard::merge_hints(const std::string& job_id, const json& hints) {
  const std::lock_guard lock(mutex_);
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end()) return false;
  json merged = std::exchange(job->second.reported_progress, false) ? json::object() : job->second.hints;
  merged.merge_patch(hints);
  if (merged == job->second.hints) return false;
  job->second.hints = std::move(merged);
  return true;
}

bool JobBoard::take_progress(const std::string& job_id, const json& report) {
  const std::lock_guard lock(mutex_);
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end() || !report.contains("progress")) return false;
  Job& job = found->second;
  if (!job.hints.empty() && !job.reported_progress) return false;
  job.reported_progress = true;
  const json hints{{"progress", report.at("progress")}, {"targetProgress", report.at("targetProgress")}};
  return std::exchange(job.hints, hints) != hints;
}

json JobBoard::hints(const std::string& job_id) const {
  const std::lock_guard lock(mutex_);
  const auto job = jobs_.find(job_id);
  return job == jobs_.end() ? json::object() : job->second.hints;
}

std::optional<Answer> JobBoard::refusal(const std::string& job_id, std::string_view token,
                                        const std::function<bool()>& needs_token) const {
  const std::lock_guard lock(mutex_);
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end()) return unknown(job_id);
  if (!job->second.token) return {};
  if (token.empty() ? !needs_token() : is_same_secret(token, *job->second.token)) return {};
  return Answer{403,
                "missing or invalid token; send the header 'Authorization: Bearer TOKEN' with the value of "
                "ADAPTDL_SUPERVISOR_TOKEN",
                ""};
}

std::optional<Answer> JobBoard::answer(const Poll& poll) const {
  const std::lock_guard lock(mutex_);
  const auto found = jobs_.find(poll.job_id);
  if (found == jobs_.end()) return unknown(poll.job_id);
  const Job& job = found->second;
  if (poll.kind == Poll::Kind::kDiscover) {
    if (job.group != poll.number || job.addresses.empty()) return {};
    return Answer{200, json(job.addresses).dump(), ""};
  }
  if (!job.generation || job.generation->number <= poll.number) return {};
  return Answer{200, job.generation->to_json().dump(), ""};
}

Answer ask_again() { return {408, "not ready yet; try again", ""}; }

}  // namespace adaptdl::sched
