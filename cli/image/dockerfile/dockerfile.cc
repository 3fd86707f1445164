#include "image/dockerfile/dockerfile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/text_parts.h"
#include "base/utf8.h"
#include "image/dockerfile/dockerfile_lines.h"
#include "image/dockerfile/flags.h"
#include "image/dockerfile/instruction.h"

namespace adaptdl::image {
namespace {

constexpr std::size_t kMaxTextSize = std::size_t{8} << 20;

void check_text(std::string_view text, const std::string& file) {
  if (text.size() > kMaxTextSize) throw Error(fmt::format("{}: larger than {} MiB", file, kMaxTextSize >> 20));
  if (!is_utf8(text)) throw Error(fmt::format("{}: not valid UTF-8; save it as UTF-8", file));
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)
    throw Error(fmt::format("{}:{}: not a Dockerfile: contains a zero byte", file,
                            1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(zero), '\n')));
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_stage_name(std::string_view name) {
  return !name.empty() && name[0] >= 'a' && name[0] <= 'z' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_.") == std::string_view::npos;
}

// Throws Error without file or line.
Stage stage_of(const InstructionParts& parts, const std::vector<Stage>& before) {
  const Flags flags(parts.name, parts.flags, {{"platform", Flags::Kind::kText}});
  const std::vector<std::string> words = split_spaces(parts.rest);
  const bool named = words.size() == 3 && upper(words[1]) == "AS";
  if (words.size() != 1 && !named) throw Error("FROM expects IMAGE or IMAGE AS NAME");
  Stage stage{.number = before.size(),
              .name = named ? lower(words[2]) : "",
              .base = words[0],
              .platform = flags.text("platform")};
  if (!named) return stage;
  if (!is_stage_name(stage.name))
    throw Error(
        fmt::format("invalid stage name '{}': expected a letter, then letters, digits, '-', '_' or '.'", words[2]));
  if (stage.name == "scratch") throw Error("invalid stage name 'scratch': reserved for the empty image");
  for (const Stage& other : before)
    if (other.name == stage.name)
      throw Error(fmt::format("duplicate stage name '{1}': already used on line {0}", other.lines.first, stage.name));
  return stage;
}

// Checks the stages that --from and from= name. Must be called when all stages are known.
void check_sources(const Dockerfile& dockerfile, const DockerfileLines& lines) {
  for (const Stage& stage : dockerfile.stages) {
    for (const Instruction& instruction : stage.instructions) {
      try {
        for (const std::string& from : sources_of(instruction))
          static_cast<void>(stage_named(dockerfile.stages, stage.number, from));
      } catch (const Error& error) {
        lines.fail(instruction.lines.first, fmt::format("{}: {}", instruction.name, error.what()));
      }
    }
  }
}

}  // namespace

Dockerfile parse_dockerfile(std::string_view text, const std::string& file) {
  check_text(text, file);
  Dockerfile dockerfile{.file = file};
  DockerfileLines lines(text, file);
  while (const auto line = lines.next()) {
    const InstructionParts parts = split_instruction(line->text, lines.escape());
    if (parts.name == "FROM") {
      try {
        Stage stage = stage_of(parts, dockerfile.stages);
        stage.lines = line->lines;
        stage.text = trimmed(line->text);
        dockerfile.stages.push_back(std::move(stage));
      } catch (const Error& error) {
        lines.fail(line->lines.first, error.what());
      }
      continue;
    }
    Instruction instruction = parse_instruction(lines, *line);
    const bool is_arg = std::holds_alternative<Arg>(instruction.body);
    if (dockerfile.stages.empty() && !is_arg)
      lines.fail(line->lines.first, fmt::format("{} before the first FROM: only ARG is allowed there", parts.name));
    (dockerfile.stages.empty() ? dockerfile.arguments : dockerfile.stages.back().instructions)
        .push_back(std::move(instruction));
  }
  if (dockerfile.stages.empty())
    throw Error(fmt::format("{}: no FROM instruction, so nothing to build", one_line(file)));
  dockerfile.escape = lines.escape();
  check_sources(dockerfile, lines);
  return dockerfile;
}

Instruction parse_trigger(std::string_view text, const std::string& file, Lines place) {
  DockerfileLines lines(text, file, place.first, false);
  try {
    check_text(text, file);
    const auto line = lines.next();
    if (!line) throw Error("the trigger is empty");
    const std::string name = split_instruction(line->text, lines.escape()).name;
    if (name == "ONBUILD" || name == "FROM" || name == "MAINTAINER")
      throw Error(fmt::format("{} is not allowed in a trigger", name));
    Instruction instruction = parse_instruction(lines, *line);
    if (lines.next()) throw Error("the trigger contains more than one instruction");
    instruction.lines = place;
    return instruction;
  } catch (const Error& error) {
    std::string_view why = error.what();
    // A line number within the trigger is not a line number in the file.
    if (dynamic_cast<const PlacedError*>(&error) != nullptr) why.remove_prefix(why.find(": ", file.size()) + 2);
    lines.fail(place.first, fmt::format("cannot run the base image's ONBUILD trigger: {}", why));
  }
}

std::vector<std::string> sources_of(const Instruction& instruction) {
  std::vector<std::string> sources;
  if (const auto* copy = std::get_if<Copy>(&instruction.body)) sources.push_back(copy->from);
  if (const auto* run = std::get_if<Run>(&instruction.body))
    for (const std::vector<Pair>& options : run->mounts)
      for (const Pair& option : options)
        if (option.name == "from") sources.push_back(option.value);
  std::erase(sources, "");
  return sources;
}

std::optional<std::size_t> stage_named(const std::vector<Stage>& stages, std::size_t number, const std::string& from) {
  const std::string name = lower(from);
  std::size_t found = stages.size();
  if (is_number(from)) {
    found = from.size() > 6 ? stages.size() : std::stoul(from);
    if (found >= stages.size())
      throw Error(fmt::format("from={}: no such stage; stages are numbered from 0 to {}", from, stages.size() - 1));
  } else {
    const auto stage = std::find_if(stages.begin(), stages.end(), [&](const Stage& s) { return s.name == name; });
    if (stage == stages.end()) return {};
    found = stage->number;
  }
  if (found == number) throw Error(fmt::format("from={} refers to its own stage", from));
  if (found > number)
    throw Error(fmt::format("from={} refers to a later stage (line {})", from, stages[found].lines.first));
  return found;
}

}  // namespace adaptdl::image
