// The instructions of a stage one after the other, each expanded in the environment that it has, and the image's
// configuration as they make it.
//
// Scopes, as the Dockerfile reference has them: ARGs before the first FROM are known to FROMs alone, until a stage
// declares them again; --build-arg gives a declared ARG its value; ENV, of the stage or of what it is built on, goes
// before an ARG of the same name; a stage that begins FROM another has that one's ARGs and ENVs. The proxies of
// --build-arg (HTTP_PROXY and its like) need no ARG, and are in the environment of RUN alone; without an ARG, what a
// RUN does is not thought to depend on them.
//
// Threading: one thread at a time. Lifetime: the Dockerfile, its stage and the settings outlive a walk,
// and the walk its steps.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "image/dockerfile.h"
#include "image/platform.h"

namespace adaptdl::image {

struct BuildSettings {
  std::map<std::string, std::string> build_arguments;
  Platform target = Platform::of_this_machine();
  Platform build = Platform::of_this_machine();
  std::string target_stage;  // as named by --target; "" for the last
};

struct ImageConfig {
  std::vector<Pair> environment;  // in order, each name once
  std::optional<std::vector<std::string>> entrypoint, command;
  std::map<std::string, std::string> labels;
  std::set<std::string> exposed_ports, volumes;
  std::string user, working_directory, stop_signal, author;
  std::optional<Healthcheck> healthcheck;
  std::vector<std::string> shell;  // none: /bin/sh -c
  std::vector<std::string> on_build;
};

// What a stage begins with and leaves: an image's configuration, and the ARGs that are in scope.
struct StageState {
  ImageConfig config;
  std::vector<Arg::One> arguments;  // in order, each name once; without a value if nobody gave one
};

// A variable's value in a FROM: the ARGs before the first one, and the platforms'. Throws Error with the place.
std::map<std::string, std::string> global_arguments(const Dockerfile& dockerfile, const BuildSettings& settings);
// The --build-arg that no ARG declares, and that are no proxies: nobody reads them.
std::vector<std::string> unused_build_arguments(const Dockerfile& dockerfile, const BuildSettings& settings);

struct Step {
  const Instruction* instruction = nullptr;  // as written
  Body body;                                 // expanded; destinations and directories absolute
  bool from_trigger = false;                 // an ONBUILD of what the stage is built on
  // For RUN, COPY, ADD and WORKDIR, as they are before it.
  std::string user, working_directory;
  // For RUN: its environment, the program with its arguments, and a script that it is, to be put where the program
  // says.
  std::vector<Pair> environment;
  std::vector<Pair> proxies;  // besides, and in no step's key
  std::vector<std::string> command;
  std::optional<std::string> script;
};

// Where the script of a step is expected.
inline constexpr const char* kScriptDirectory = "/dev/pipes";

class StageWalk {
 public:
  // `begin` is of what the stage is built on, with its triggers left out of the configuration: they are `triggers`, and
  // come first. A configuration without a PATH gets the usual one.
  StageWalk(const Dockerfile& dockerfile, const Stage& stage, const BuildSettings& settings, StageState begin,
            std::vector<Instruction> triggers = {});

  // Null at the end. Throws Error with the place.
  std::optional<Step> next();
  const StageState& state() const { return state_; }  // after the last step

 private:
  std::optional<std::string> variable(const std::string& name) const;
  std::string expand(const std::string& text) const;
  std::vector<Pair> expand(const std::vector<Pair>& pairs) const;
  std::vector<Pair> run_environment() const;
  std::vector<Pair> run_proxies(const std::vector<Pair>& environment) const;
  std::vector<std::string> shell_command(const CommandLine& command) const;
  std::string absolute(const std::string& path) const;

  // Each expands the step's body, and makes its changes.
  void apply(Step& step, Arg& arg);
  void apply(Step& step, Env& env);
  void apply(Step& step, Label& label);
  void apply(Step& step, Copy& copy);
  void apply(Step& step, Run& run);
  void apply(Step& step, Cmd& cmd);
  void apply(Step& step, Entrypoint& entrypoint);
  void apply(Step& step, Healthcheck& healthcheck);
  void apply(Step& step, Expose& expose);
  void apply(Step& step, Volume& volume);
  void apply(Step& step, User& user);
  void apply(Step& step, Workdir& workdir);
  void apply(Step& step, Shell& shell);
  void apply(Step& step, StopSignal& signal);
  void apply(Step& step, Maintainer& maintainer);
  void apply(Step& step, OnBuild& on_build);

  const Dockerfile& dockerfile_;
  const Stage& stage_;
  const BuildSettings& settings_;
  std::vector<Instruction> triggers_;
  std::map<std::string, std::string> globals_;
  StageState state_;
  std::size_t next_ = 0;
  bool has_command_ = false;  // of the stage's own
};

}  // namespace adaptdl::image
