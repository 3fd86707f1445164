// Expands a stage's instructions in order, each in its environment, and derives the image's configuration.
//
// Scopes follow the Dockerfile reference: ARGs before the first FROM apply only to FROMs, unless a stage declares them
// again; --build-arg sets the value of a declared ARG; an ENV in the stage or its base takes precedence over an ARG
// with the same name; a stage that begins FROM another stage inherits that stage's ARGs and ENVs. Proxy variables in
// --build-arg (HTTP_PROXY and similar) require no ARG, and appear only in the environment of RUN; unless an ARG
// declares them, they are not part of RUN's key.
//
// Lifetime: the Dockerfile, its stage and the settings must outlive a StageWalk, which must outlive its steps.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "image/base/platform.h"
#include "image/dockerfile/dockerfile.h"
#include "image/dockerfile/run_mount.h"
#include "image/dockerfile/values.h"

namespace adaptdl::image {

struct BuildSettings {
  std::map<std::string, std::string> build_arguments;
  Platform target = Platform::of_this_machine();
  Platform build = Platform::of_this_machine();
  std::string target_stage;  // the argument of --target; "" for the last stage
};

struct ImageConfig {
  std::vector<Pair> environment;  // in order, each name once
  std::optional<std::vector<std::string>> entrypoint, command;
  std::map<std::string, std::string> labels;
  std::set<std::string> exposed_ports, volumes;
  std::string user, working_directory, stop_signal, author;
  std::optional<Healthcheck> healthcheck;
  std::vector<std::string> shell;  // empty for /bin/sh -c
  std::vector<std::string> on_build;
};

// The state at the start and at the end of a stage: an image's configuration, and the ARGs in scope.
struct StageState {
  ImageConfig config;
  std::vector<Arg::One> arguments;  // in order, each name once; without a value if none was given
};

// Returns the variables that FROMs can use: the ARGs before the first FROM, and the platforms. Throws an Error with
// file and line.
std::map<std::string, std::string> global_arguments(const Dockerfile& dockerfile, const BuildSettings& settings);
// Returns the names in --build-arg that no ARG declares and that are not proxies; these have no effect.
std::vector<std::string> unused_build_arguments(const Dockerfile& dockerfile, const BuildSettings& settings);

// A COPY or ADD to execute, or a WORKDIR: without sources, only the destination is created.
struct CopyStep {
  struct File {
    std::string name, content;
  };
  bool add = false;
  std::vector<std::string> sources;
  std::vector<File> files;  // additional sources, written inline
  std::string destination;  // absolute; with a trailing slash if it must be a directory
  std::string from;         // as in Copy
  std::string owner;        // "user[:group]", as names or numbers; "" if not given
  std::optional<FileMode> mode;
  std::string checksum;
  std::vector<std::string> excludes;
  bool link = false, parents = false;
  std::optional<bool> unpack;  // if unset, ADD unpacks local archives
};

// A RUN to execute: the program with its arguments, and the script at the program's path, if any.
struct RunStep {
  std::vector<std::string> command;
  std::optional<std::string> script;
  std::vector<Pair> environment;
  std::vector<Pair> proxies;  // additional variables, which no step's key contains
  std::vector<Mount> mounts;  // targets are absolute
  Run::Network network = Run::Network::kDefault;
  std::string user, working_directory;
};

// An instruction with its values expanded and checked.
struct Step {
  const Instruction* instruction = nullptr;                // as written
  std::variant<std::monostate, CopyStep, RunStep> action;  // empty if only the configuration changes
  std::string history;  // the text for the image's history, as Docker writes it; for an ARG, only the name
};

// The directory in which a step's script is expected.
inline constexpr const char* kScriptDirectory = "/dev/pipes";

class StageWalk {
 public:
  // `begin` is the state at the end of the stage's base. `triggers` are the base's ONBUILD triggers, which are executed
  // first. If the configuration contains no PATH, the default PATH is added.
  StageWalk(const Dockerfile& dockerfile, const Stage& stage, const BuildSettings& settings, StageState begin,
            std::vector<Instruction> triggers = {});

  // Returns the next step; nullopt at the end. Throws an Error with file and line.
  std::optional<Step> next();
  const StageState& state() const { return state_; }  // the state after the last step

 private:
  std::optional<std::string> variable(const std::string& name) const;
  std::string expand(const std::string& text) const;
  std::vector<Pair> expand(const std::vector<Pair>& pairs) const;
  std::vector<Pair> run_environment() const;
  std::vector<Pair> run_proxies(const std::vector<Pair>& environment) const;
  std::vector<std::string> shell_command(const CommandLine& command) const;
  std::string absolute(const std::string& path) const;

  // Each overload expands an instruction, applies it to the state, and returns its text for the history.
  std::string apply(Step& step, const Arg& arg);
  std::string apply(Step& step, const Env& env);
  std::string apply(Step& step, const Label& label);
  std::string apply(Step& step, const Copy& copy);
  std::string apply(Step& step, const Run& run);
  std::string apply(Step& step, const Cmd& cmd);
  std::string apply(Step& step, const Entrypoint& entrypoint);
  std::string apply(Step& step, const Healthcheck& healthcheck);
  std::string apply(Step& step, const Expose& expose);
  std::string apply(Step& step, const Volume& volume);
  std::string apply(Step& step, const User& user);
  std::string apply(Step& step, const Workdir& workdir);
  std::string apply(Step& step, const Shell& shell);
  std::string apply(Step& step, const StopSignal& signal);
  std::string apply(Step& step, const Maintainer& maintainer);
  std::string apply(Step& step, const OnBuild& on_build);

  const Dockerfile& dockerfile_;
  const Stage& stage_;
  const BuildSettings& settings_;
  std::vector<Instruction> triggers_;
  std::map<std::string, std::string> globals_;
  StageState state_;
  std::size_t next_ = 0;
  bool has_command_ = false;  // the stage itself has a CMD
};

}  // namespace adaptdl::image
