// A workload: which jobs arrive when. docs/formats.md has the format of its file.
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
  // What its user chose by hand, for policies that do not adapt.
  int num_replicas = 1;
  std::size_t batch_size = 1;
};

struct Workload {
  std::string name;
  std::vector<WorkloadJob> jobs;  // at least one
};

// Its name is the file's, without ".csv". Throws Error, "FILE:LINE:COLUMN: what is wrong; the way out".
Workload load_workload(const std::filesystem::path& file, const Applications& applications);

}  // namespace adaptdl::sched
