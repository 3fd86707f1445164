// A Dockerfile as a typed tree: stages, and in each its instructions, with the lines that they stand on. All that can
// be known to be wrong without building is refused here, by file and line; nothing is expanded yet (expansion.h).
//
// Threading and lifetime: plain values.
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
  int first = 0, last = 0;  // from 1, both inclusive
};

struct Heredoc {
  std::string name;
  std::string content;  // as in the file, but for COPY and ADD without leading tabs where '<<-' says so
  bool expand = true;   // the name was not quoted
  bool strip_tabs = false;
};

// The command of RUN, CMD and ENTRYPOINT.
struct CommandLine {
  bool exec = false;               // written as JSON: `words` is all of it; otherwise it is one text for the shell
  std::vector<std::string> words;  // none: an empty JSON list
  std::vector<Heredoc> heredocs;   // of RUN
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
  bool add = false;  // ADD
  std::vector<std::string> sources;
  std::vector<Heredoc> files;  // further sources, by content
  std::string destination;
  std::string from;  // a stage by name or number, or an image; "" for the build's context
  std::string owner, mode, checksum;
  std::vector<std::string> excludes;  // patterns as in an ignore file
  bool link = false, parents = false;
  std::optional<bool> unpack;  // not said: local archives in ADD are
};

struct Mount {
  enum class Type { kBind, kCache, kTmpfs, kSecret };
  enum class Sharing { kShared, kPrivate, kLocked };
  Type type = Type::kBind;
  std::string from;  // a stage by name, or an image; "" for the build's context, or an empty directory if a cache
  std::string source, target;
  bool read_only = true;
  std::string id;                             // of a cache (its target if not said) or a secret
  Sharing sharing = Sharing::kShared;         // of a cache
  bool required = false;                      // of a secret
  std::optional<std::string> environment;     // of a secret: a variable that it is in
  std::optional<unsigned> mode, user, group;  // of a cache or secret
  std::size_t size = 0;                       // of a tmpfs, in bytes; 0 for the system's
};

struct Run {
  enum class Network { kDefault, kNone, kHost };
  CommandLine command;
  std::vector<std::string> mount_texts;  // as written: their values are expanded
  std::vector<Mount> mounts;             // with what was not to be expanded; after the expansion all
  Network network = Network::kDefault;
};

struct Cmd {
  CommandLine command;
};
struct Entrypoint {
  CommandLine command;
};
struct Healthcheck {
  std::vector<std::string> test;  // "NONE", "CMD" or "CMD-SHELL" first
  std::chrono::nanoseconds interval{}, timeout{}, start_period{}, start_interval{};  // 0: the base image's
  int retries = 0;
};
struct Expose {
  std::vector<std::string> ports;  // sorted; after the expansion as "80/tcp", one each
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
  std::string name;  // in capitals
  Lines lines;
  std::string text;  // as written, with its continuations joined and without its heredocs
  Body body;
};

struct Stage {
  std::size_t number = 0;
  std::string name;  // "" if it has none; in small letters
  std::string base;  // these two with their variables
  std::string platform;
  Lines lines;  // of its FROM
  std::string text;
  std::vector<Instruction> instructions;
};

struct Dockerfile {
  std::string file;  // as it is named in messages
  char escape = '\\';
  std::vector<Instruction> arguments;  // ARGs before the first stage
  std::vector<Stage> stages;           // at least one
};

// Throws Error: "FILE:LINE: why", one line.
Dockerfile parse_dockerfile(std::string_view text, const std::string& file);

// An instruction that an image says is to run when it is built on. `file` and `lines` are its FROM's. Throws Error.
Instruction parse_trigger(std::string_view text, const std::string& file, Lines lines);

// What --from or from= of an instruction of the stage of that number stands for: a stage before it, or null for an
// image. Throws Error, without a place, if it is a stage that does not come before it.
std::optional<std::size_t> stage_named(const std::vector<Stage>& stages, std::size_t number, const std::string& from);

}  // namespace adaptdl::image
