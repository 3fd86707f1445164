#include <fmt/format.h>

#include <charconv>
#include <memory>

#include "adaptdl/error.h"
#include "command/base/command.h"
#include "command/jobs/ray_jobs.h"
#include "command/run/run_plan.h"
#include "local/record/run_client.h"
#include "local/record/run_directory.h"
#include "terminal/print.h"

namespace adaptdl::cli {
namespace {

struct ResizeOptions {
  std::string run, replicas, ray;
};

int parse_replicas(std::string_view text, const std::string& whole) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMaxRunReplicas)
    throw UsageError(
        fmt::format("resize: REPLICAS must be N or MIN:MAX, from 1 to {}, not '{}'", kMaxRunReplicas, whole));
  return value;
}

void resize(const ResizeOptions& options) {
  const std::string_view text = options.replicas;
  const std::size_t colon = text.find(':');
  const int min = parse_replicas(text.substr(0, colon), options.replicas);
  const int max = colon == std::string_view::npos ? min : parse_replicas(text.substr(colon + 1), options.replicas);
  if (min > max) throw UsageError(fmt::format("resize: MIN must not be greater than MAX in '{}'", options.replicas));
  if (!options.ray.empty()) return run_on_ray_head(options.ray, options.run, {"resize", options.run, options.replicas});
  const sched::RunEntry run = sched::find_run(sched::runs_directory(), options.run);
  sched::ask_run(run, {{"request", "resize"}, {"min", min}, {"max", max}});
  print_out("resizing {} to {} replica{}\n", run.status.name, options.replicas, options.replicas == "1" ? "" : "s");
}

}  // namespace

void add_resize(CLI::App& app, int&) {
  auto options = std::make_shared<ResizeOptions>();
  app.add_option("run", options->run, "Name of a local run; a unique prefix is enough")->required()->type_name("RUN");
  app.add_option("replicas", options->replicas,
                 "Number of replicas, or a minimum and maximum between which the scheduler chooses")
      ->required()
      ->type_name("N|MIN:MAX");
  add_ray_option(app, options->ray);
  app.footer(
      "The run continues while it is resized, or restarts from a checkpoint if its program cannot adapt.\n"
      "`adaptdl ls --watch` shows its state.");
  app.callback([options] { resize(*options); });
}

}  // namespace adaptdl::cli
