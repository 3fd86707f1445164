// A workload: which jobs arrive, and when. docs/formats.md describes its file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "simulator/application.h"

namespace adaptdl::sched {

struct WorkloadJob {
  std::string name;            // unique
  double submission_time = 0;  // seconds, at least 0
  std::shared_ptr<const Application> application;
  // The user's choices, for policies that do not adapt them.
  int num_replicas = 1;
  std::size_t batch_size = 1;
};

struct Workload {
  std::string name;
  std::vector<WorkloadJob> jobs;  // at least one
};

// Loads a workload. Its name is the file's name without ".csv". Throws the same errors as Csv.
Workload load_workload(const std::filesystem::path& file, const Applications& applications);

}  // namespace adaptdl::sched
