#include <fmt/format.h>

#include <memory>

#include "adaptdl/error.h"
#include "command/command.h"
#include "local/run_client.h"
#include "local/run_directory.h"

namespace adaptdl::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string run;
  bool keep_checkpoints = false;
  bool now = false;
};

// Another run may go on from the checkpoints of this one.
void refuse_if_used(const fs::path& runs, const sched::RunEntry& run) {
  const std::string inside = (run.directory / "").string();
  for (const sched::RunEntry& other : sched::list_runs(runs)) {
    if (other.alive && other.status.name != run.status.name && other.status.checkpoints.starts_with(inside)) {
      throw Error(fmt::format("run {} saves its checkpoints in {}: delete it first, or give --keep-checkpoints",
                              other.status.name, other.status.checkpoints));
    }
  }
}

void end(const sched::RunEntry& run, bool now) {
  try {
    sched::ask_run(run, {{"request", now ? "kill" : "stop"}});
  } catch (const Error&) {
    if (sched::is_alive(run)) throw;  // otherwise it ended by itself
  }
  sched::wait_for_end(run);
}

void remove(const Options& options) {
  const fs::path runs = sched::runs_directory();
  const sched::RunEntry run = sched::find_run(runs, options.run);
  if (!options.keep_checkpoints) refuse_if_used(runs, run);
  if (run.alive) end(run, options.now);
  const fs::path checkpoints = run.status.checkpoints;
  sched::remove_run(run, options.keep_checkpoints);
  std::error_code ignored;
  const bool kept =
      !checkpoints.empty() && fs::is_directory(checkpoints, ignored) && !fs::is_empty(checkpoints, ignored);
  fmt::print("deleted {}{}\n", run.status.name,
             kept ? fmt::format("; its checkpoints are in {}", checkpoints.string()) : "");
}

}  // namespace

void add_delete(CLI::App& app, int&) {
  auto options = std::make_shared<Options>();
  app.add_option("run", options->run, "the run, by its name or the beginning of it")->required()->type_name("RUN");
  app.add_flag("--keep-checkpoints", options->keep_checkpoints, "remove all but the checkpoints");
  app.add_flag("--now", options->now, "kill the replicas at once, without a checkpoint");
  app.footer(
      "A run that goes on is asked to checkpoint and to exit, as by Ctrl-C, and waited for. A directory that it was\n"
      "given with --checkpoint or --logs is left as it is.");
  app.callback([options] { remove(*options); });
}

}  // namespace adaptdl::cli
