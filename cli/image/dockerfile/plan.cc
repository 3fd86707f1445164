#include "image/dockerfile/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/text_parts.h"
#include "image/dockerfile/shell_words.h"

namespace adaptdl::image {
namespace {

std::size_t target_of(const Dockerfile& dockerfile, const std::string& target) {
  if (target.empty()) return dockerfile.stages.size() - 1;
  std::vector<std::string> names;
  for (const Stage& stage : dockerfile.stages) {
    if (stage.name == lower(target) || std::to_string(stage.number) == target) return stage.number;
    names.push_back(stage.name.empty() ? std::to_string(stage.number) : stage.name);
  }
  throw Error(one_line(
      fmt::format("'{}' has no stage '{}'; its stages are {}", dockerfile.file, target, fmt::join(names, ", "))));
}

class Planner {
 public:
  Planner(const Dockerfile& dockerfile, const BuildSettings& settings, const ImageTriggers& triggers)
      : dockerfile_(dockerfile),
        settings_(settings),
        triggers_(triggers),
        globals_(global_arguments(dockerfile, settings)) {}

  Plan plan(std::size_t target) {
    // Stages need only earlier stages, so in reverse order each stage is visited after all stages that need it.
    std::set<std::size_t> needed{target};
    std::map<std::size_t, PlannedStage> planned;
    for (std::size_t number = 0; number <= target; ++number) planned.emplace(number, PlannedStage{});
    for (std::size_t number = target + 1; number-- > 0;)
      if (needed.contains(number)) {
        planned[number] = stage(dockerfile_.stages[number]);
        if (planned[number].base.stage) needed.insert(*planned[number].base.stage);
        for (const auto& [from, source] : planned[number].sources)
          if (source.stage) needed.insert(*source.stage);
      }
    Plan plan;
    for (const std::size_t number : needed) {
      PlannedStage& stage = planned[number];
      // A stage without --platform inherits its base stage's platform.
      if (stage.base.stage && dockerfile_.stages[number].platform.empty())
        stage.platform = planned[*stage.base.stage].platform;
      add_images(plan, stage);
      plan.stages.push_back(stage);
    }
    return plan;
  }

 private:
  [[noreturn]] void fail(Lines lines, std::string_view why) const {
    throw Error(one_line(fmt::format("{}:{}: {}", dockerfile_.file, lines.first, why)));
  }

  // Expands a text in FROM. The names of variables that have no value are added to `unset`.
  std::string expand(const Stage& stage, const std::string& text, std::vector<std::string>& unset) const {
    try {
      return expand_word(text, {.escape = dockerfile_.escape},
                         [&](const std::string& name) -> std::optional<std::string> {
                           const auto found = globals_.find(name);
                           if (found != globals_.end()) return found->second;
                           unset.push_back(name);
                           return {};
                         });
    } catch (const Error& error) {
      fail(stage.lines, fmt::format("FROM {}: {}", text, error.what()));
    }
  }

  [[noreturn]] void fail_unset(const Stage& stage, const std::string& text,
                               const std::vector<std::string>& unset) const {
    if (unset.empty()) fail(stage.lines, fmt::format("FROM {}: the expanded value is empty or incomplete", text));
    fail(stage.lines,
         fmt::format("FROM {}: no value for {}; set it with an ARG before the first FROM, or with --build-arg", text,
                     fmt::join(unset, ", ")));
  }

  Source base(const Stage& stage, const Platform& platform) const {
    std::vector<std::string> unset;
    const std::string name = expand(stage, stage.base, unset);
    if (name.empty() || std::string_view(":@/").find(name.back()) != std::string_view::npos)
      fail_unset(stage, stage.base, unset);
    for (const Stage& other : dockerfile_.stages)
      if (other.number < stage.number && other.name == lower(name))
        return {.stage = other.number, .image = "", .platform = {}};
    return {.stage = {}, .image = name == "scratch" ? "" : name, .platform = platform};
  }

  Platform platform(const Stage& stage) const {
    if (stage.platform.empty()) return settings_.target;
    std::vector<std::string> unset;
    const std::string name = expand(stage, stage.platform, unset);
    if (name.empty()) fail_unset(stage, "--platform=" + stage.platform, unset);
    try {
      return Platform::parse(name);
    } catch (const Error& error) {
      fail(stage.lines, fmt::format("FROM --platform: {}", error.what()));
    }
  }

  std::vector<Instruction> triggers(const Stage& stage, const Source& base) const {
    std::vector<Instruction> triggers;
    const auto add = [&](const std::string& text) {
      triggers.push_back(parse_trigger(text, dockerfile_.file, stage.lines));
    };
    if (base.stage) {
      for (const Instruction& instruction : dockerfile_.stages[*base.stage].instructions)
        if (const auto* on_build = std::get_if<OnBuild>(&instruction.body)) {
          triggers.push_back(*on_build->trigger);
          triggers.back().lines = stage.lines;
        }
    } else if (const auto found = triggers_.find(base.image); found != triggers_.end()) {
      std::for_each(found->second.begin(), found->second.end(), add);
    }
    return triggers;
  }

  PlannedStage stage(const Stage& stage) const {
    PlannedStage planned{
        .number = stage.number, .base = {}, .platform = platform(stage), .sources = {}, .triggers = {}};
    planned.base = base(stage, planned.platform);
    planned.triggers = triggers(stage, planned.base);
    const auto add = [&](const Instruction& instruction) {
      for (const std::string& from : sources_of(instruction)) {
        try {
          Source source{
              .stage = stage_named(dockerfile_.stages, stage.number, from), .image = "", .platform = settings_.target};
          if (!source.stage && from != "scratch") source.image = from;
          planned.sources.emplace(from, source);
        } catch (const Error& error) {
          fail(instruction.lines, fmt::format("{}: {}", instruction.name, error.what()));
        }
      }
    };
    std::for_each(planned.triggers.begin(), planned.triggers.end(), add);
    std::for_each(stage.instructions.begin(), stage.instructions.end(), add);
    return planned;
  }

  void add_images(Plan& plan, const PlannedStage& stage) const {
    const auto add = [&](const Source& source, Lines lines, bool is_base) {
      if (source.stage || source.image.empty()) return;
      for (NeededImage& known : plan.images)
        if (known.image == source.image && known.platform == source.platform) {
          known.base = known.base || is_base;
          return;
        }
      plan.images.push_back({source.image, source.platform, lines, is_base});
    };
    const Stage& written = dockerfile_.stages[stage.number];
    add(stage.base, written.lines, true);
    const auto add_sources = [&](const Instruction& instruction) {
      for (const std::string& from : sources_of(instruction)) add(stage.sources.at(from), instruction.lines, false);
    };
    std::for_each(stage.triggers.begin(), stage.triggers.end(), add_sources);
    std::for_each(written.instructions.begin(), written.instructions.end(), add_sources);
  }

  const Dockerfile& dockerfile_;
  const BuildSettings& settings_;
  const ImageTriggers& triggers_;
  std::map<std::string, std::string> globals_;
};

}  // namespace

Plan make_plan(const Dockerfile& dockerfile, const BuildSettings& settings, const ImageTriggers& triggers) {
  return Planner(dockerfile, settings, triggers).plan(target_of(dockerfile, settings.target_stage));
}

}  // namespace adaptdl::image
