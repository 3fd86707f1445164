// Reads any text as a Dockerfile: it is refused with a one-line printable error, or parsed, planned and expanded.
// Triggers that ONBUILD stores in the image configuration can be parsed again.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "image/dockerfile/plan.h"

using namespace adaptdl::image;

namespace {

void check_error(const adaptdl::Error& error) {
  const std::string_view why = error.what();
  if (!why.starts_with("Dockerfile") || why != adaptdl::one_line(why, why.size())) std::abort();
}

void build(const Dockerfile& file, const BuildSettings& settings) {
  const Plan plan = make_plan(file, settings);
  if (plan.stages.empty() || plan.stages.back().number != file.stages.size() - 1) std::abort();
  std::map<std::size_t, StageState> states;
  for (const PlannedStage& stage : plan.stages) {
    // In the plan, the stages that a stage depends on come before that stage.
    StageState begin = stage.base.stage ? states.at(*stage.base.stage) : StageState{};
    for (const auto& [from, source] : stage.sources)
      if (source.stage) static_cast<void>(states.at(*source.stage));
    StageWalk walk(file, file.stages[stage.number], settings, std::move(begin), stage.triggers);
    while (walk.next()) {
    }
    for (const std::string& text : walk.state().config.on_build) parse_trigger(text, file.file, {1, 1});
    states.emplace(stage.number, walk.state());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  BuildSettings settings;
  settings.build_arguments = {{"VERSION", "1.2"}, {"A", "a b/c*"}, {"HTTP_PROXY", "http://proxy"}};
  try {
    build(parse_dockerfile(text, "Dockerfile"), settings);
  } catch (const adaptdl::Error& error) {
    check_error(error);
  }
  return 0;
}
