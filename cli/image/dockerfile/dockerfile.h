// A Dockerfile's syntax tree: stages and their instructions, with line numbers. Errors that can be detected without
// building are reported here, with file and line. Texts are as written; their variables are expanded later
// (expansion.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace adaptdl::image {

struct Lines {
  int first = 0, last = 0;  // counted from 1, both inclusive
};

struct Heredoc {
  std::string name;
  std::string content;  // as in the file; for COPY and ADD with '<<-', without leading tabs
  bool expand = true;   // whether variables are expanded; false if the name was quoted
  bool strip_tabs = false;
};

// The command of a RUN, CMD or ENTRYPOINT.
struct CommandLine {
  bool exec = false;               // written as JSON; if false, `words` contains one text for the shell
  std::vector<std::string> words;  // empty for an empty JSON array
  std::vector<Heredoc> heredocs;   // only for RUN
};

struct Pair {
  std::string name, value;
};

struct Arg {
  struct One {
    std::string name;
    std::optional<std::string> value;
  };
  std::vector<One> arguments;
};
struct Env {
  std::vector<Pair> pairs;
};
struct Label {
  std::vector<Pair> pairs;
};

struct Copy {
  bool add = false;  // the instruction is ADD
  std::vector<std::string> sources;
  std::vector<Heredoc> files;  // additional sources, written inline
  std::string destination;
  std::string from;  // a stage's name or number, or an image; "" for the build context
  std::string owner, mode, checksum;
  std::vector<std::string> excludes;  // patterns as in an ignore file
  bool link = false, parents = false;
  std::optional<bool> unpack;  // if unset, ADD unpacks local archives
};

struct Run {
  enum class Network { kDefault, kNone, kHost };
  CommandLine command;
  std::vector<std::vector<Pair>> mounts;  // the options of each --mount (run_mount.h)
  Network network = Network::kDefault;
};

struct Cmd {
  CommandLine command;
};
struct Entrypoint {
  CommandLine command;
};
struct Healthcheck {
  std::vector<std::string> test;  // the first word is "NONE", "CMD" or "CMD-SHELL"
  std::chrono::nanoseconds interval{}, timeout{}, start_period{}, start_interval{};  // 0 if not set
  int retries = 0;
};
struct Expose {
  std::vector<std::string> ports;  // sorted
};
struct Volume {
  std::vector<std::string> paths;
};
struct User {
  std::string name;
};
struct Workdir {
  std::string path;
};
struct Shell {
  std::vector<std::string> words;
};
struct StopSignal {
  std::string name;
};
struct Maintainer {
  std::string name;
};
struct Instruction;
struct OnBuild {
  std::string text;
  std::shared_ptr<const Instruction> trigger;
};

using Body = std::variant<Arg, Env, Label, Copy, Run, Cmd, Entrypoint, Healthcheck, Expose, Volume, User, Workdir,
                          Shell, StopSignal, Maintainer, OnBuild>;

struct Instruction {
  std::string name;  // in upper case
  Lines lines;
  std::string text;  // as written, with continuation lines joined and without heredocs
  Body body;
};

struct Stage {
  std::size_t number = 0;
  std::string name;  // in lower case; "" if the stage has no name
  std::string base, platform;
  Lines lines;  // the FROM's lines
  std::string text;
  std::vector<Instruction> instructions;
};

struct Dockerfile {
  std::string file;  // the file's name in messages
  char escape = '\\';
  std::vector<Instruction> arguments;  // ARGs before the first stage
  std::vector<Stage> stages;           // at least one
};

// Parses a Dockerfile. Throws a one-line Error, "FILE:LINE: why".
Dockerfile parse_dockerfile(std::string_view text, const std::string& file);

// Parses an ONBUILD instruction from a base image. `file` and `lines` locate the FROM. Throws Error.
Instruction parse_trigger(std::string_view text, const std::string& file, Lines lines);

// Returns the stages and images that an instruction reads files from, as its --from or from= names them.
std::vector<std::string> sources_of(const Instruction& instruction);

// Resolves an instruction's --from or from= in stage `number`: returns the number of an earlier stage, or nullopt for
// an image. Throws Error, without file or line, if `from` names the same stage or a later one.
std::optional<std::size_t> stage_named(const std::vector<Stage>& stages, std::size_t number, const std::string& from);

}  // namespace adaptdl::image
