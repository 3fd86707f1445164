#include "image/dockerfile/instruction.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "adaptdl/error.h"
#include "base/text_parts.h"
#include "image/dockerfile/flags.h"
#include "image/dockerfile/instruction_words.h"
#include "image/dockerfile/run_mount.h"
#include "image/dockerfile/values.h"

namespace adaptdl::image {
namespace {

using Kind = Flags::Kind;

// Reads one instruction. Errors do not contain file and line.
class InstructionReader {
 public:
  InstructionReader(DockerfileLines& source, Instruction& instruction)
      : source_(source), instruction_(instruction), parts_(split_instruction(instruction.text, source.escape())) {
    instruction_.name = parts_.name;
  }
  void read();

 private:
  Flags flags(const std::vector<Flags::Known>& known = {}) const { return Flags(parts_.name, parts_.flags, known); }
  // Returns the instruction's arguments. Throws Error if there are none.
  const std::string& needed(std::string_view what) const {
    if (parts_.rest.empty()) throw Error(fmt::format("{} needs {}", parts_.name, what));
    return parts_.rest;
  }
  std::vector<Heredoc> heredocs();
  CommandLine command(std::string_view text);
  std::vector<Pair> pairs() const;
  std::vector<std::string> list(std::string_view what) const;

  Body arg() const;
  Body copy(bool add);
  Body run();
  Body healthcheck();
  Body expose() const;
  Body volume() const;
  Body shell() const;
  Body stop_signal() const;
  Body on_build();

  DockerfileLines& source_;
  Instruction& instruction_;
  InstructionParts parts_;
};

std::vector<Heredoc> InstructionReader::heredocs() {
  std::vector<Heredoc> heredocs = heredocs_of(instruction_.text);
  for (Heredoc& heredoc : heredocs)
    heredoc.content = source_.heredoc(heredoc.name, heredoc.strip_tabs, instruction_.lines);
  return heredocs;
}

CommandLine InstructionReader::command(std::string_view text) {
  if (auto words = json_words(text)) return {.exec = true, .words = std::move(*words)};
  return {.words = {std::string(text)}};
}

// Reads "name=value name=value", or the old form with one pair, "name value".
std::vector<Pair> InstructionReader::pairs() const {
  const std::string& text = needed("a name and a value: NAME=VALUE");
  std::vector<Pair> pairs;
  const std::vector<std::string> words = quoted_words(text, source_.escape());
  if (!words.empty() && words[0].find('=') == std::string::npos) {
    const std::size_t end = text.find_first_of(kSpaces);
    if (end == std::string::npos)
      throw Error(fmt::format("{} {} has no value; write {}=VALUE", parts_.name, text, text));
    return {{text.substr(0, end), std::string(trimmed(std::string_view(text).substr(end)))}};
  }
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos)
      throw Error(fmt::format("{}: invalid argument '{}': expected NAME=VALUE; quote a value that contains spaces",
                              parts_.name, word));
    if (equals == 0) throw Error(fmt::format("{}: invalid argument '{}': the name is missing", parts_.name, word));
    pairs.push_back({word.substr(0, equals), word.substr(equals + 1)});
  }
  return pairs;
}

std::vector<std::string> InstructionReader::list(std::string_view what) const {
  std::vector<std::string> words = json_words(needed(what)).value_or(split_spaces(parts_.rest));
  if (words.empty()) throw Error(fmt::format("{} needs {}", parts_.name, what));
  return words;
}

Body InstructionReader::arg() const {
  flags();
  Arg arg;
  for (const std::string& word : quoted_words(needed("a name: NAME or NAME=DEFAULT"), source_.escape())) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (name.empty() || !is_plain(name))
      throw Error(fmt::format("ARG: invalid argument '{}': expected NAME or NAME=DEFAULT", word));
    arg.arguments.push_back(
        {name, equals == std::string::npos ? std::nullopt : std::make_optional(word.substr(equals + 1))});
  }
  return arg;
}

Body InstructionReader::copy(bool add) {
  std::vector<Flags::Known> known{
      {"chown", Kind::kText}, {"chmod", Kind::kText}, {"link", Kind::kBool}, {"exclude", Kind::kTexts}};
  if (add) {
    known.push_back({"checksum", Kind::kText});
    known.push_back({"unpack", Kind::kBool});
    known.push_back({"keep-git-dir", Kind::kRefused, "is for git repositories, which are not supported"});
  } else {
    known.push_back({"from", Kind::kText});
    known.push_back({"parents", Kind::kBool});
  }
  const Flags flags = this->flags(known);
  Copy copy{.add = add,
            .from = flags.text("from"),
            .owner = flags.text("chown"),
            .mode = flags.text("chmod"),
            .checksum = flags.text("checksum"),
            .excludes = flags.texts("exclude"),
            .link = flags.flag("link"),
            .parents = flags.flag("parents")};
  if (flags.given("unpack")) copy.unpack = flags.flag("unpack");
  if (!is_plain(copy.from))
    throw Error(
        fmt::format("COPY --from={} must not contain a variable; use the name of a stage instead, defined with "
                    "'FROM $VARIABLE AS NAME'",
                    copy.from));
  const auto json_form = json_words(parts_.rest);
  std::vector<std::string> words = json_form.value_or(split_spaces(parts_.rest));
  if (words.size() < 2) throw Error(fmt::format("{} needs a source and a destination", parts_.name));
  copy.destination = words.back();
  words.pop_back();
  if (!json_form) copy.files = heredocs();
  std::size_t used = 0;
  for (const std::string& word : words) {
    if (!json_form && used < copy.files.size() && heredoc_of(word))
      ++used;
    else
      copy.sources.push_back(word);
  }
  if (used != copy.files.size())
    throw Error(fmt::format("{}: a heredoc must be a separate source: <<NAME", parts_.name));
  for (Heredoc& file : copy.files) {
    if (file.name.find('/') != std::string::npos || file.name == "." || file.name == "..")
      throw Error(fmt::format("{} <<{}: not a valid file name", parts_.name, file.name));
    if (file.strip_tabs) file.content = without_tabs(file.content);
  }
  if (!copy.checksum.empty() && (copy.sources.size() != 1 || !copy.files.empty()))
    throw Error("ADD --checksum accepts only one source");
  for (const std::string& source : copy.sources)
    if (is_plain(source)) check_copy_source(source, add, !copy.checksum.empty());
  if (!copy.mode.empty() && is_plain(copy.mode)) static_cast<void>(FileMode::parse(copy.mode, parts_.name));
  if (!copy.checksum.empty() && is_plain(copy.checksum)) check_checksum(copy.checksum);
  return copy;
}

Body InstructionReader::run() {
  const Flags flags = this->flags({{"mount", Kind::kTexts},
                                   {"network", Kind::kText},
                                   {"security", Kind::kText},
                                   {"device", Kind::kRefused, "is not supported: builds have no devices"}});
  Run run{.command = command(needed("a command"))};
  if (run.command.words.empty()) throw Error("RUN [] has no command");
  if (!run.command.exec) run.command.heredocs = heredocs();
  for (const std::string& text : flags.texts("mount")) {
    const std::vector<Pair>& options = run.mounts.emplace_back(mount_options(text));
    if (std::all_of(options.begin(), options.end(), [](const Pair& option) { return is_plain(option.value); }))
      static_cast<void>(parse_mount(options));
  }
  const std::string security = flags.text("security");
  if (security == "insecure") throw Error("RUN --security=insecure is not supported: builds run without privileges");
  if (flags.given("security") && security != "sandbox")
    throw Error(fmt::format("RUN --security: invalid value '{}': expected sandbox", security));
  const std::string network = flags.text("network");
  if (network == "none")
    run.network = Run::Network::kNone;
  else if (network == "host")
    run.network = Run::Network::kHost;
  else if (flags.given("network") && network != "default")
    throw Error(fmt::format("RUN --network: invalid value '{}': expected default, none or host", network));
  return run;
}

Body InstructionReader::healthcheck() {
  const Flags flags = this->flags({{"interval", Kind::kText},
                                   {"timeout", Kind::kText},
                                   {"start-period", Kind::kText},
                                   {"start-interval", Kind::kText},
                                   {"retries", Kind::kText}});
  const std::string& text = needed("CMD and a command, or NONE");
  const std::size_t end = std::min(text.find_first_of(kSpaces), text.size());
  const std::string type = upper(text.substr(0, end));
  const std::string_view rest = trimmed(std::string_view(text).substr(end));
  if (type == "NONE") {
    if (!rest.empty() || !parts_.flags.empty()) throw Error("HEALTHCHECK NONE accepts no flags or arguments");
    return Healthcheck{.test = {"NONE"}};
  }
  if (type != "CMD")
    throw Error(fmt::format("HEALTHCHECK: invalid type '{}': expected CMD or NONE", text.substr(0, end)));
  const CommandLine test = command(rest);
  if (rest.empty() || test.words.empty()) throw Error("HEALTHCHECK CMD needs a command");
  const auto value = [&](const char* name, const auto& parse) {
    try {
      return flags.given(name) ? parse(flags.text(name)) : decltype(parse(text))();
    } catch (const Error& error) {
      throw Error(fmt::format("HEALTHCHECK --{}: {}", name, error.what()));
    }
  };
  constexpr unsigned kMaxRetries = 0x7fffffff;
  Healthcheck check{.test = {test.exec ? "CMD" : "CMD-SHELL"},
                    .interval = value("interval", parse_duration),
                    .timeout = value("timeout", parse_duration),
                    .start_period = value("start-period", parse_duration),
                    .start_interval = value("start-interval", parse_duration),
                    .retries = static_cast<int>(
                        value("retries", [](const auto& each) { return parse_number(each, 10, kMaxRetries); }))};
  check.test.insert(check.test.end(), test.words.begin(), test.words.end());
  return check;
}

Body InstructionReader::expose() const {
  flags();
  Expose expose{split_spaces(needed("a port"))};
  std::sort(expose.ports.begin(), expose.ports.end());
  for (const std::string& port : expose.ports)
    if (is_plain(port)) static_cast<void>(parse_ports(port));
  return expose;
}

Body InstructionReader::volume() const {
  flags();
  Volume volume;
  for (const std::string& path : list("a path")) {
    volume.paths.emplace_back(trimmed(path));
    if (volume.paths.back().empty()) throw Error("VOLUME has an empty path");
  }
  return volume;
}

Body InstructionReader::shell() const {
  flags();
  const auto words = json_words(needed("a JSON array such as [\"/bin/bash\", \"-c\"]"));
  if (!words || words->empty())
    throw Error(fmt::format("SHELL must be a JSON array such as [\"/bin/bash\", \"-c\"], not '{}'", parts_.rest));
  return Shell{*words};
}

Body InstructionReader::stop_signal() const {
  flags();
  if (is_plain(needed("a signal"))) check_signal(parts_.rest);
  return StopSignal{parts_.rest};
}

Body InstructionReader::on_build() {
  flags();
  const InstructionParts inner = split_instruction(needed("an instruction"), source_.escape());
  if (inner.name == "ONBUILD" || inner.name == "FROM" || inner.name == "MAINTAINER")
    throw Error(
        fmt::format("ONBUILD accepts all instructions except ONBUILD, FROM and MAINTAINER, but got {}", inner.name));
  auto trigger =
      std::make_shared<Instruction>(Instruction{.lines = instruction_.lines, .text = parts_.rest, .body = {}});
  InstructionReader(source_, *trigger).read();
  instruction_.lines = trigger->lines;
  OnBuild on_build{parts_.rest, trigger};
  const auto append = [&](const std::vector<Heredoc>& heredocs) {
    for (const Heredoc& heredoc : heredocs) on_build.text += fmt::format("\n{}{}", heredoc.content, heredoc.name);
  };
  if (const auto* run = std::get_if<Run>(&trigger->body)) append(run->command.heredocs);
  if (const auto* copy = std::get_if<Copy>(&trigger->body)) append(copy->files);
  return on_build;
}

void InstructionReader::read() {
  using ReadBody = std::function<Body(InstructionReader&)>;
  static const std::map<std::string_view, ReadBody> readers{
      {"ADD", [](auto& r) { return r.copy(true); }},
      {"ARG", [](auto& r) { return r.arg(); }},
      {"CMD", [](auto& r) { return r.flags(), Cmd{r.command(r.needed("a command"))}; }},
      {"COPY", [](auto& r) { return r.copy(false); }},
      {"ENTRYPOINT", [](auto& r) { return r.flags(), Entrypoint{r.command(r.needed("a command"))}; }},
      {"ENV", [](auto& r) { return r.flags(), Env{r.pairs()}; }},
      {"EXPOSE", [](auto& r) { return r.expose(); }},
      {"HEALTHCHECK", [](auto& r) { return r.healthcheck(); }},
      {"LABEL", [](auto& r) { return r.flags(), Label{r.pairs()}; }},
      {"MAINTAINER", [](auto& r) { return r.flags(), Maintainer{r.needed("a name")}; }},
      {"ONBUILD", [](auto& r) { return r.on_build(); }},
      {"RUN", [](auto& r) { return r.run(); }},
      {"SHELL", [](auto& r) { return r.shell(); }},
      {"STOPSIGNAL", [](auto& r) { return r.stop_signal(); }},
      {"USER", [](auto& r) { return r.flags(), User{r.needed("a user: NAME or NAME:GROUP")}; }},
      {"VOLUME", [](auto& r) { return r.volume(); }},
      {"WORKDIR", [](auto& r) { return r.flags(), Workdir{r.needed("a path")}; }},
  };
  const auto reader = readers.find(parts_.name);
  if (reader == readers.end()) {
    constexpr std::size_t kShown = 40;
    source_.fail(instruction_.lines.first, fmt::format("unknown instruction '{}'", parts_.name.substr(0, kShown)));
  }
  instruction_.body = reader->second(*this);
}

}  // namespace

InstructionParts split_instruction(std::string_view text, char escape) {
  text = trimmed(text);
  const std::string_view name = text.substr(0, text.find_first_of(kSpaces));
  text.remove_prefix(name.size());
  InstructionParts parts{upper(name), take_flags(text, escape), {}};
  parts.rest = text;
  return parts;
}

Instruction parse_instruction(DockerfileLines& lines, const DockerfileLines::Logical& line) {
  Instruction instruction{.lines = line.lines, .text = std::string(trimmed(line.text)), .body = {}};
  try {
    InstructionReader(lines, instruction).read();
  } catch (const PlacedError&) {
    throw;
  } catch (const Error& error) {
    const std::string_view why = error.what();
    lines.fail(line.lines.first,
               why.starts_with(instruction.name) ? std::string(why) : fmt::format("{}: {}", instruction.name, why));
  }
  return instruction;
}

}  // namespace adaptdl::image
