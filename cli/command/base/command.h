// The commands of `adaptdl`: one table, and one file per command.
//
// A command's file contains its options, checks, and one call into the module that does the work. `add` registers the
// options (and, if the command has verbs, CLI11 subcommands); the callback of the app, or of the selected subcommand,
// does the work. Help, completion and the options in man pages are generated from what `add` registers, so every
// registered option is documented:
//   - an option's type_name names its value: DIR and FILE complete to paths, RUN to names of runs, JOB to names of runs
//     and cluster jobs (only to names of jobs if the command requires a cluster), "a|b|c" to one of these words, and
//     any other type name has no completions;
//   - a description begins with a capital letter, has no final full stop, and ends with the default in parentheses.
//
// Errors: a callback throws; `main` prints one line and chooses the exit code (see adaptdl/error.h).
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string_view>

namespace adaptdl::cli {

// What a command requires: nothing, a run (or a job), or a cluster.
enum class Needs { kNothing, kRun, kCluster };

struct Command {
  std::string_view name;
  std::string_view summary;  // one line, without a full stop
  Needs needs;
  // Registers options, subcommands and callbacks. A callback that succeeds may set `exit_code`, which is 0 before the
  // call and outlives the app.
  void (*add)(CLI::App& app, int& exit_code);
};

// Returns all commands, in the order in which help lists them.
std::span<const Command> commands();

// Returns the command with that name, or null if there is none.
const Command* find_command(std::string_view name);

// Each of these functions is defined in the file of its command.
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
