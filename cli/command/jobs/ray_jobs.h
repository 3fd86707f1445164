// Implements --ray, with which commands act on the jobs that `adaptdl submit --ray` started in a Ray cluster.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "kube/copy/shell.h"
#include "ray/access.h"
#include "ray/job_server.h"

namespace adaptdl::cli {

// Keys of a job's metadata: the program with its arguments, and the limits "MIN:MAX" on the number of replicas.
inline constexpr char kRayProgram[] = "adaptdl.program";
inline constexpr char kRayReplicas[] = "adaptdl.replicas";
// The directory of the job's checkpoints; missing if the job saves none.
inline constexpr char kRayCheckpoints[] = "adaptdl.checkpoints";
// The directory of adaptdl's own files in a job's working directory.
inline constexpr char kRayFiles[] = ".adaptdl";

// Adds --ray, which cannot be used with any of the options in `others`. The value "auto" takes the address from the
// environment (see ray::find_access).
CLI::Option* add_ray_option(CLI::App& app, std::string& address, const std::vector<const char*>& others = {});
// Returns how to reach the cluster that --ray selects. Throws the same exceptions as ray::find_access().
ray::Access find_ray(const std::string& address);

// Returns why a job failed, in one line: the last line of its output, or else Ray's message.
std::string failure_of(const ray::Job& job);

// Returns the directory with the scripts that run in a Ray cluster. Throws Error if it is not installed.
std::filesystem::path ray_scripts();

struct RayLogsOptions {
  std::string job;
  std::optional<int> rank, tail;
  bool follow = false;
};

// All functions throw Error if the cluster cannot be reached or has no such job.
void list_ray_jobs(const std::string& address, const std::vector<std::string>& names, bool as_json);
// Runs `adaptdl WORDS...` on the head node, where an active job is a local run, and prints the command's output.
void run_on_ray_head(const std::string& address, const std::string& job, const std::vector<std::string>& words);
void show_ray_logs(const std::string& address, const RayLogsOptions& options);
// Starts a shell for copies on the head node. Relative paths are below the job's checkpoint directory. `path` is the
// path to copy from or to; throws UsageError if it is relative and the job has no checkpoint directory.
std::unique_ptr<kube::Shell> open_ray_shell(const std::string& address, const std::string& job, const std::string& path,
                                            const std::stop_token& stop);
// Stops the jobs. Unless `no_wait` is true, also waits until they have ended, and removes their records.
void delete_ray_jobs(const std::string& address, const std::vector<std::string>& names, bool no_wait);

}  // namespace adaptdl::cli
