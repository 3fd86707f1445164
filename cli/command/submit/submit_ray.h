// `adaptdl submit --ray`: uploads a project to a Ray cluster and starts its program there as an elastic job.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

namespace adaptdl::cli {

struct RaySubmitOptions {
  std::string address;  // empty: not for Ray
  std::string cpus = "1", gpus = "1", max_cluster_size, checkpoint_path, checkpoint_timeout = "120s",
              cluster_rescale_timeout = "60s", runtime_env;
  bool no_checkpoint = false, copy_checkpoints = false;

  // The options that `submit` has for every kind of cluster.
  std::filesystem::path project;
  std::vector<std::string> program;
  std::string name, min_replicas, max_replicas, timeout;
  bool follow = false, wait = false, json = false;
};

// Adds --ray and the options that require it.
void add_ray_submit_options(CLI::App& app, RaySubmitOptions& options);

// Throws UsageError if an option is invalid, and Error if the job cannot be started. With `follow` or `wait`, also
// throws Error if the job fails or does not end in time.
void submit_ray(const RaySubmitOptions& options, int& exit_code);

}  // namespace adaptdl::cli
