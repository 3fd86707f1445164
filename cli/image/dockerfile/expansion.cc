#include "image/dockerfile/expansion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/text_parts.h"
#include "image/base/clean_path.h"
#include "image/dockerfile/instruction.h"
#include "image/dockerfile/instruction_words.h"
#include "image/dockerfile/shell_words.h"

namespace adaptdl::image {
namespace {

// The kernel's limit on a variable's size, MAX_ARG_STRLEN, without the terminating zero.
constexpr std::size_t kMaxVariableSize = 128 * 1024 - 1;
constexpr const char* kUsualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr std::array<std::string_view, 5> kProxies{"http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy"};

bool is_proxy(const std::string& name) {
  return std::find(kProxies.begin(), kProxies.end(), lower(name)) != kProxies.end();
}

const Pair* find(const std::vector<Pair>& pairs, const std::string& name) {
  const auto pair = std::find_if(pairs.begin(), pairs.end(), [&](const Pair& p) { return p.name == name; });
  return pair == pairs.end() ? nullptr : &*pair;
}

void set(std::vector<Pair>& pairs, const std::string& name, const std::string& value) {
  const auto pair = std::find_if(pairs.begin(), pairs.end(), [&](const Pair& p) { return p.name == name; });
  if (pair == pairs.end())
    pairs.push_back({name, value});
  else
    pair->value = value;
}

void check_variable(const std::string& name, const std::string& value) {
  if (name.empty() || name.find('=') != std::string::npos) throw Error(fmt::format("invalid variable name '{}'", name));
  if (name.size() + value.size() > kMaxVariableSize)
    throw Error(fmt::format("variable '{}' is larger than {} KiB, the kernel's limit", name.substr(0, 64),
                            kMaxVariableSize >> 10));
}

std::string joined_words(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

std::string command_text(const CommandLine& line) {
  return line.exec ? nlohmann::json(line.words).dump() : joined_words(line.words);
}

std::string pairs_text(const std::vector<Pair>& pairs) {
  std::vector<std::string> words;
  for (const Pair& pair : pairs) words.push_back(pair.name + "=" + pair.value);
  return joined_words(words);
}

[[noreturn]] void fail_expansion(const std::string& file, const Instruction& instruction, std::string_view why) {
  throw Error(one_line(fmt::format("{}:{}: {}{}{}", file, instruction.lines.first,
                                   why.starts_with(instruction.name) ? "" : instruction.name,
                                   why.starts_with(instruction.name) ? "" : ": ", why)));
}

}  // namespace

std::map<std::string, std::string> global_arguments(const Dockerfile& dockerfile, const BuildSettings& settings) {
  const Platform &build = settings.build, &target = settings.target;
  std::string stage = settings.target_stage.empty() ? dockerfile.stages.back().name : settings.target_stage;
  if (stage.empty()) stage = "default";
  std::map<std::string, std::string> globals{{"BUILDPLATFORM", build.to_string()},
                                             {"BUILDOS", build.os},
                                             {"BUILDARCH", build.architecture},
                                             {"BUILDVARIANT", build.variant},
                                             {"TARGETOS", target.os},
                                             {"TARGETARCH", target.architecture},
                                             {"TARGETPLATFORM", target.to_string()},
                                             {"TARGETVARIANT", target.variant},
                                             {"TARGETSTAGE", stage}};
  const auto given = [&](const std::string& name) { return settings.build_arguments.find(name); };
  for (auto& [name, value] : globals)
    if (given(name) != settings.build_arguments.end()) value = given(name)->second;
  for (const Instruction& instruction : dockerfile.arguments) {
    for (const Arg::One& argument : std::get<Arg>(instruction.body).arguments) {
      try {
        if (const auto value = given(argument.name); value != settings.build_arguments.end())
          globals[argument.name] = value->second;
        else if (argument.value)
          globals[argument.name] =
              expand_word(*argument.value, {.escape = dockerfile.escape}, [&](const std::string& name) {
                const auto found = globals.find(name);
                return found == globals.end() ? std::nullopt : std::make_optional(found->second);
              });
        check_variable(argument.name, globals[argument.name]);
        // An ARG that is declared without a value stays unset.
        if (!argument.value && given(argument.name) == settings.build_arguments.end() && globals[argument.name].empty())
          globals.erase(argument.name);
      } catch (const Error& error) {
        fail_expansion(dockerfile.file, instruction, error.what());
      }
    }
  }
  return globals;
}

std::vector<std::string> unused_build_arguments(const Dockerfile& dockerfile, const BuildSettings& settings) {
  std::set<std::string> declared;
  const auto declare = [&](const Instruction& instruction) {
    const auto* on_build = std::get_if<OnBuild>(&instruction.body);
    if (const auto* arg = std::get_if<Arg>(on_build != nullptr ? &on_build->trigger->body : &instruction.body))
      for (const Arg::One& argument : arg->arguments) declared.insert(argument.name);
  };
  for (const Instruction& instruction : dockerfile.arguments) declare(instruction);
  for (const Stage& stage : dockerfile.stages)
    for (const Instruction& instruction : stage.instructions) declare(instruction);
  std::vector<std::string> unused;
  for (const auto& [name, value] : settings.build_arguments)
    if (!declared.contains(name) && !is_proxy(name)) unused.push_back(name);
  return unused;
}

StageWalk::StageWalk(const Dockerfile& dockerfile, const Stage& stage, const BuildSettings& settings, StageState begin,
                     std::vector<Instruction> triggers)
    : dockerfile_(dockerfile),
      stage_(stage),
      settings_(settings),
      triggers_(std::move(triggers)),
      globals_(global_arguments(dockerfile, settings)),
      state_(std::move(begin)) {
  state_.config.on_build.clear();
  if (find(state_.config.environment, "PATH") == nullptr) state_.config.environment.push_back({"PATH", kUsualPath});
}

std::optional<Step> StageWalk::next() {
  const std::size_t at = next_++;
  const bool from_trigger = at < triggers_.size();
  if (!from_trigger && at - triggers_.size() >= stage_.instructions.size()) return {};
  const Instruction& instruction = from_trigger ? triggers_[at] : stage_.instructions[at - triggers_.size()];
  Step step{.instruction = &instruction, .action = {}, .history = {}};
  try {
    step.history = std::visit([&](const auto& body) { return apply(step, body); }, instruction.body);
  } catch (const Error& error) {
    fail_expansion(dockerfile_.file, instruction, error.what());
  }
  return step;
}

std::optional<std::string> StageWalk::variable(const std::string& name) const {
  if (const Pair* pair = find(state_.config.environment, name)) return pair->value;
  for (const Arg::One& argument : state_.arguments)
    if (argument.name == name) return argument.value;
  return {};
}

std::string StageWalk::expand(const std::string& text) const {
  return expand_word(text, {.escape = dockerfile_.escape}, [&](const std::string& name) { return variable(name); });
}

// Expands all pairs with the variables as they were before the instruction.
std::vector<Pair> StageWalk::expand(const std::vector<Pair>& pairs) const {
  std::vector<Pair> expanded;
  for (const Pair& pair : pairs) expanded.push_back({expand(pair.name), expand(pair.value)});
  return expanded;
}

std::string StageWalk::absolute(const std::string& path) const {
  return path.starts_with('/') ? clean_path(path) : clean_path("/" + state_.config.working_directory + "/" + path);
}

std::vector<Pair> StageWalk::run_environment() const {
  std::vector<Pair> environment = state_.config.environment;
  for (const Arg::One& argument : state_.arguments)
    if (argument.value && find(environment, argument.name) == nullptr)
      environment.push_back({argument.name, *argument.value});
  return environment;
}

std::vector<Pair> StageWalk::run_proxies(const std::vector<Pair>& environment) const {
  std::vector<Pair> proxies;
  for (const auto& [name, value] : settings_.build_arguments) {
    if (!is_proxy(name)) continue;
    // Some programs read only one of the two spellings.
    for (const std::string& spelled : {upper(name), lower(name)})
      if (find(environment, spelled) == nullptr && find(proxies, spelled) == nullptr)
        proxies.push_back({spelled, value});
  }
  return proxies;
}

std::vector<std::string> StageWalk::shell_command(const CommandLine& command) const {
  if (command.exec) return command.words;
  std::vector<std::string> words = state_.config.shell;
  if (words.empty()) words = {"/bin/sh", "-c"};
  words.push_back(joined_words(command.words));
  return words;
}

std::string StageWalk::apply(Step&, const Arg& arg) {
  std::string names;
  for (Arg::One argument : arg.arguments) {
    const auto given = settings_.build_arguments.find(argument.name);
    const auto global = globals_.find(argument.name);
    if (given != settings_.build_arguments.end())
      argument.value = given->second;
    else if (argument.value)
      argument.value = expand(*argument.value);
    else if (global != globals_.end())
      argument.value = global->second;
    check_variable(argument.name, argument.value.value_or(""));
    names += " " + argument.name;
    const auto known = std::find_if(state_.arguments.begin(), state_.arguments.end(),
                                    [&](const Arg::One& other) { return other.name == argument.name; });
    if (known == state_.arguments.end())
      state_.arguments.push_back(std::move(argument));
    else if (argument.value)
      known->value = std::move(argument.value);
  }
  return "ARG" + names;
}

std::string StageWalk::apply(Step&, const Env& env) {
  const std::vector<Pair> pairs = expand(env.pairs);
  for (const Pair& pair : pairs) {
    check_variable(pair.name, pair.value);
    set(state_.config.environment, pair.name, pair.value);
  }
  return "ENV " + pairs_text(pairs);
}

std::string StageWalk::apply(Step&, const Label& label) {
  const std::vector<Pair> pairs = expand(label.pairs);
  for (const Pair& pair : pairs) {
    if (pair.name.empty()) throw Error("LABEL has an empty name");
    state_.config.labels[pair.name] = pair.value;
  }
  return "LABEL " + pairs_text(pairs);
}

std::string StageWalk::apply(Step& step, const Copy& copy) {
  const std::string name = copy.add ? "ADD" : "COPY", to = expand(copy.destination), mode = expand(copy.mode);
  CopyStep result{.add = copy.add,
                  .destination = absolute(to),
                  .from = copy.from,
                  .owner = expand(copy.owner),
                  .checksum = expand(copy.checksum),
                  .excludes = copy.excludes,
                  .link = copy.link,
                  .parents = copy.parents,
                  .unpack = copy.unpack};
  const bool directory =
      to.empty() || to.ends_with('/') || to == "." || to == ".." || to.ends_with("/.") || to.ends_with("/..");
  if (directory && result.destination != "/") result.destination += '/';
  if (!mode.empty()) result.mode = FileMode::parse(mode, name);
  if (!result.checksum.empty()) check_checksum(result.checksum);
  std::vector<std::string> words;
  for (const std::string& source : copy.sources) {
    words.push_back(expand(source));
    check_copy_source(words.back(), copy.add, !result.checksum.empty());
  }
  result.sources = words;
  for (const Heredoc& file : copy.files) {
    words.push_back("<<" + file.name);
    const auto value = [&](const std::string& variable_name) { return variable(variable_name); };
    result.files.push_back(
        {file.name, file.expand ? expand_word(file.content, {.plain_quotes = true}, value) : file.content});
  }
  const std::string from = copy.from.empty() ? "" : "--from=" + copy.from + " ";
  std::string history = fmt::format("{} {}{} {}", name, from, fmt::join(words, " "), result.destination);
  step.action = std::move(result);
  return history;
}

std::string StageWalk::apply(Step& step, const Run& run) {
  RunStep result{.environment = run_environment(),
                 .network = run.network,
                 .user = state_.config.user,
                 .working_directory = absolute("")};
  result.proxies = run_proxies(result.environment);
  for (const std::vector<Pair>& options : run.mounts) {
    Mount mount = parse_mount(expand(options));
    if (!mount.target.empty() && absolute(mount.target) == "/")
      throw Error(fmt::format("--mount: target '{}' must not be the root directory", mount.target));
    if (!mount.target.empty()) mount.target = absolute(mount.target);
    if (mount.type == Mount::Type::kCache && mount.id.empty()) mount.id = mount.target;
    result.mounts.push_back(std::move(mount));
  }
  CommandLine command = run.command;
  const std::vector<Heredoc>& heredocs = run.command.heredocs;
  std::string& text = command.words[0];
  if (!heredocs.empty() && heredoc_of(text)) {
    // The command consists of a heredoc only, which is the script. If the script begins with #!, it is run by the
    // interpreter that it names.
    text = heredocs[0].strip_tabs ? without_tabs(heredocs[0].content) : heredocs[0].content;
    if (text.starts_with("#!")) result.script = text;
  } else {
    for (const Heredoc& heredoc : heredocs) text += fmt::format("\n{}{}", heredoc.content, heredoc.name);
  }
  if (result.script)
    result.command = {fmt::format("{}/{}", kScriptDirectory, heredocs[0].name)};
  else
    result.command = shell_command(command);
  step.action = std::move(result);
  return "RUN " + command_text(run.command);
}

std::string StageWalk::apply(Step&, const Cmd& cmd) {
  state_.config.command = shell_command(cmd.command);
  has_command_ = true;
  return "CMD " + command_text(cmd.command);
}

std::string StageWalk::apply(Step&, const Entrypoint& entrypoint) {
  state_.config.entrypoint = shell_command(entrypoint.command);
  // A base image's CMD is meant for that image's own ENTRYPOINT.
  if (!has_command_) state_.config.command.reset();
  return "ENTRYPOINT " + command_text(entrypoint.command);
}

std::string StageWalk::apply(Step&, const Healthcheck& healthcheck) {
  state_.config.healthcheck = healthcheck;
  return "HEALTHCHECK " + joined_words(healthcheck.test);
}

std::string StageWalk::apply(Step&, const Expose& expose) {
  std::vector<std::string> ports;
  const Variables variables = [&](const std::string& name) { return variable(name); };
  for (const std::string& text : expose.ports)
    for (const std::string& port : expand_words(text, {.escape = dockerfile_.escape}, variables))
      for (std::string& one : parse_ports(port)) ports.push_back(std::move(one));
  state_.config.exposed_ports.insert(ports.begin(), ports.end());
  return "EXPOSE " + joined_words(ports);
}

std::string StageWalk::apply(Step&, const Volume& volume) {
  std::vector<std::string> paths;
  for (const std::string& path : volume.paths) {
    paths.push_back(expand(path));
    if (paths.back().empty()) throw Error("VOLUME has an empty path");
  }
  state_.config.volumes.insert(paths.begin(), paths.end());
  return "VOLUME " + joined_words(paths);
}

std::string StageWalk::apply(Step&, const User& user) {
  state_.config.user = expand(user.name);
  return "USER " + state_.config.user;
}

std::string StageWalk::apply(Step& step, const Workdir& workdir) {
  const std::string path = absolute(expand(workdir.path));
  state_.config.working_directory = path;
  step.action = CopyStep{.destination = path == "/" ? path : path + "/", .owner = state_.config.user};
  return "WORKDIR " + path;
}

std::string StageWalk::apply(Step&, const Shell& shell) {
  state_.config.shell = shell.words;
  return "SHELL " + nlohmann::json(shell.words).dump();
}

std::string StageWalk::apply(Step&, const StopSignal& signal) {
  const std::string name = expand(signal.name);
  check_signal(name);
  state_.config.stop_signal = name;
  return "STOPSIGNAL " + name;
}

std::string StageWalk::apply(Step&, const Maintainer& maintainer) {
  state_.config.author = maintainer.name;
  return "MAINTAINER " + maintainer.name;
}

std::string StageWalk::apply(Step&, const OnBuild& on_build) {
  state_.config.on_build.push_back(on_build.text);
  return "ONBUILD " + on_build.text;
}

}  // namespace adaptdl::image
