// The syntax tree of a Dockerfile: stages and their instructions, with line numbers. Faults that can be detected
// without building are rejected here, with file and line; variables are not expanded yet (expansion.h).
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
  bool expand = true;   // variables are expanded, as the name was not quoted
  bool strip_tabs = false;
};

// The command of RUN, CMD and ENTRYPOINT.
struct CommandLine {
  bool exec = false;               // written as JSON; otherwise `words` is one text for the shell
  std::vector<std::string> words;  // empty: an empty JSON array
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
  std::vector<Heredoc> files;  // additional sources, given by their content
  std::string destination;
  std::string from;  // a stage by name or number, or an image; "": the build context
  std::string owner, mode, checksum;
  std::vector<std::string> excludes;  // patterns as in an ignore file
  bool link = false, parents = false;
  std::optional<bool> unpack;  // unset: ADD unpacks local archives
};

struct Mount {
  enum class Type { kBind, kCache, kTmpfs, kSecret };
  enum class Sharing { kShared, kPrivate, kLocked };
  Type type = Type::kBind;
  std::string from;  // a stage by name, or an image; "": the build context, or for a cache an empty directory
  std::string source, target;
  bool read_only = true;
  std::string id;                             // of a cache (default: its target) or a secret
  Sharing sharing = Sharing::kShared;         // of a cache
  bool required = false;                      // of a secret
  std::optional<std::string> environment;     // of a secret: the environment variable that contains it
  std::optional<unsigned> mode, user, group;  // of a cache or secret
  std::size_t size = 0;                       // of a tmpfs, in bytes; 0: the system's default
};

struct Run {
  enum class Network { kDefault, kNone, kHost };
  CommandLine command;
  std::vector<std::string> mount_texts;  // as written; their values are expanded later
  std::vector<Mount> mounts;             // without the values that have variables; after the expansion, complete
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
  std::chrono::nanoseconds interval{}, timeout{}, start_period{}, start_interval{};  // 0: not set
  int retries = 0;
};
struct Expose {
  std::vector<std::string> ports;  // sorted; after the expansion, "80/tcp" for each port
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
  std::string name;  // in lower case; "" if it has none
  std::string base;  // base and platform are not expanded
  std::string platform;
  Lines lines;  // of its FROM
  std::string text;
  std::vector<Instruction> instructions;
};

struct Dockerfile {
  std::string file;  // its name in messages
  char escape = '\\';
  std::vector<Instruction> arguments;  // ARGs before the first stage
  std::vector<Stage> stages;           // at least one
};

// Throws Error in one line, "FILE:LINE: why".
Dockerfile parse_dockerfile(std::string_view text, const std::string& file);

// Parses an ONBUILD instruction of a base image. `file` and `lines` are those of the FROM. Throws Error.
Instruction parse_trigger(std::string_view text, const std::string& file, Lines lines);

// Resolves --from or from= of an instruction in stage `number`: returns the number of an earlier stage, or null for an
// image. Throws Error, without file and line, if it names a stage that is not earlier.
std::optional<std::size_t> stage_named(const std::vector<Stage>& stages, std::size_t number, const std::string& from);

}  // namespace adaptdl::image
