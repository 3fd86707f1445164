// The commands of `adaptdl`: one table, one file a command.
//
// A command's file has the shape: options, checks, one call into the room that does the work. It registers its options
// (and, if it has verbs of its own, CLI11 subcommands) in `add`, and does its work in the callback of the app, or of
// the subcommand, that was chosen. Help, completion and man pages are made from what `add` registers, so an option that
// is registered is documented:
//   - a value is shown as the option's type_name: DIR and FILE complete to paths, RUN to the names of runs, JOB to
//     those of runs and of jobs of the cluster (of jobs alone if the command needs a cluster), "a|b|c" to one of these
//     words, anything else to nothing;
//   - a description is one or two sentences without a final full stop, with the default in it.
//
// Errors: a callback throws; `main` prints one line and picks the exit code (see adaptdl/error.h).
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string_view>

namespace adaptdl::cli {

// What must be there for a command to work.
enum class Needs { kNothing, kRun, kCluster };

struct Command {
  std::string_view name;
  std::string_view summary;  // one line, without a full stop
  Needs needs;
  // Registers options, subcommands and callbacks. A callback that ends well may set `exit_code` (0 before the call),
  // which outlives the app.
  void (*add)(CLI::App& app, int& exit_code);
};

// Every command there is, in the order in which help lists them.
std::span<const Command> commands();

// The command of that name, or null.
const Command* find_command(std::string_view name);

// What each command's file defines.
void add_run(CLI::App& app, int& exit_code);
void add_tune(CLI::App& app, int& exit_code);
void add_build(CLI::App& app, int& exit_code);
void add_submit(CLI::App& app, int& exit_code);
void add_ls(CLI::App& app, int& exit_code);
void add_top(CLI::App& app, int& exit_code);
void add_logs(CLI::App& app, int& exit_code);
void add_cost(CLI::App& app, int& exit_code);
void add_cp(CLI::App& app, int& exit_code);
void add_describe(CLI::App& app, int& exit_code);
void add_resize(CLI::App& app, int& exit_code);
void add_suspend(CLI::App& app, int& exit_code);
void add_resume(CLI::App& app, int& exit_code);
void add_delete(CLI::App& app, int& exit_code);
void add_checkpoint(CLI::App& app, int& exit_code);
void add_tensorboard(CLI::App& app, int& exit_code);
void add_operator(CLI::App& app, int& exit_code);
void add_simulate(CLI::App& app, int& exit_code);
void add_help(CLI::App& app, int& exit_code);

}  // namespace adaptdl::cli
