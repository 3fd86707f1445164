#include "simulator/workload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "base/counted.h"
#include "simulator/csv.h"

namespace adaptdl::sched {
namespace {

constexpr double kMaxTime = 1e12;  // seconds; at larger times, rounding would merge cycles

void check_batch_size(const Csv& csv, std::size_t row, const WorkloadJob& job) {
  const Application& application = *job.application;
  if (job.batch_size < application.init_batch_size() || job.batch_size > application.max_batch_size()) {
    csv.fail(
        row, csv.has("batch_size") ? "batch_size" : "num_replicas",
        fmt::format("invalid batch size {}: expected {} to {}, the range in which application '{}' was validated",
                    job.batch_size, application.init_batch_size(), application.max_batch_size(), application.name()));
  }
  const auto replicas = static_cast<std::size_t>(job.num_replicas);
  if (replicas > 1 && job.batch_size < replicas * application.min_local_bsz()) {
    csv.fail(row, "num_replicas",
             fmt::format("{} replicas share a batch of {}, but application '{}' was measured with at least {} "
                         "per replica; use fewer replicas or a larger batch",
                         replicas, job.batch_size, application.name(), counted(application.min_local_bsz(), "sample")));
  }
}

WorkloadJob load_job(const Csv& csv, std::size_t row, const Applications& applications) {
  WorkloadJob job;
  job.name = csv.text(row, "name");
  if (job.name.empty()) csv.fail(row, "name", "the job name must not be empty");
  job.submission_time = csv.number(row, "time", 0, kMaxTime);
  const std::string& application = csv.text(row, "application");
  const auto found = applications.find(application);
  if (found == applications.end()) {
    std::vector<std::string_view> names;
    for (const auto& [name, traces] : applications) names.push_back(name);
    csv.fail(row, "application",
             fmt::format("unknown application '{}': expected one of {}", application, fmt::join(names, ", ")));
  }
  job.application = found->second;
  if (csv.has("num_replicas")) job.num_replicas = csv.count(row, "num_replicas");
  job.batch_size = csv.has("batch_size")
                       ? static_cast<std::size_t>(csv.count(row, "batch_size"))
                       : std::max(job.application->init_batch_size(),
                                  job.application->min_local_bsz() * static_cast<std::size_t>(job.num_replicas));
  check_batch_size(csv, row, job);
  return job;
}

}  // namespace

Workload load_workload(const std::filesystem::path& file, const Applications& applications) {
  const Csv csv(file, {"name", "time", "application"});
  Workload workload{file.stem().string(), {}};
  std::set<std::string> names;
  for (std::size_t row = 0; row < csv.rows(); ++row) {
    workload.jobs.push_back(load_job(csv, row, applications));
    const std::string& name = workload.jobs.back().name;
    if (!names.insert(name).second) csv.fail(row, "name", fmt::format("duplicate job name '{}'; choose another", name));
  }
  return workload;
}

}  // namespace adaptdl::sched
