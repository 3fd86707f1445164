#include "tuner/optuna_sampler.h"

#include <fmt/format.h>

#include <utility>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "tune/journal/journal_distribution.h"
#include "tune/sampler/parameter_draw.h"
#include "tune/study/python_json.h"

namespace adaptdl::sched::tune {
namespace {

using nlohmann::json;

std::vector<std::string> helper_command(const OptunaPlan& plan) {
  std::vector<std::string> command{plan.python, plan.script, plan.name, std::to_string(plan.seed)};
  if (plan.journal.empty()) return command;
  command.push_back(plan.journal);
  command.push_back(plan.study);
  return command;
}

std::string cannot_use(const OptunaPlan& plan, const Error& error) {
  return fmt::format("cannot use sampler 'optuna:{}': {}", plan.name, one_line(error.what()));
}

std::map<std::string, json> members(const json& object, const char* field) {
  std::map<std::string, json> members;
  const auto found = object.find(field);
  if (found == object.end() || !found->is_object()) return members;
  for (const auto& [key, value] : found->items()) members[key] = value;
  return members;
}

// Throws Error if the helper reports an error.
void check_answer(const json& answer) {
  const auto error = answer.find("error");
  if (error != answer.end()) throw Error(error->is_string() ? error->get<std::string>() : to_python_json(*error));
}

}  // namespace

// The helper has no grace period while it imports Optuna, because nothing is lost if the import is interrupted.
OptunaSampler::OptunaSampler(const OptunaPlan& plan) try
    : name_(plan.name), helper_(helper_command(plan), std::chrono::milliseconds(0)) {
  check_answer(helper_.receive());
  helper_.set_grace(PythonHelper::kGrace);
} catch (const HelperInterrupted&) {
  throw;
} catch (const UsageError& error) {
  throw UsageError(cannot_use(plan, error) + "; set ADAPTDL_PYTHON to a Python with Optuna");
} catch (const Error& error) {
  throw UsageError(cannot_use(plan, error));
}

json OptunaSampler::ask(const json& request, const char* field) {
  try {
    json answer = helper_.ask(request);
    check_answer(answer);
    if (!answer.contains(field)) throw Error(fmt::format("the helper process did not send '{}'", field));
    return std::move(answer[field]);
  } catch (const Error& error) {
    throw Error(fmt::format("sampler 'optuna:{}' failed: {}", name_, one_line(error.what())));
  }
}

json OptunaSampler::suggest(const Parameter& parameter) {
  const std::string distribution = to_text(parameter.distribution);
  json value = ask({{"suggest", parameter.name}, {"distribution", distribution}}, "value");
  // The storage would refuse such a value.
  if (!contains(parameter.distribution, value))
    throw Error(fmt::format("sampler 'optuna:{}' failed: its value for parameter '{}' is not in the search space: {}",
                            name_, parameter.name, to_python_json(value)));
  return value;
}

std::optional<Values> OptunaSampler::sample(const Space& space, const Study& study, int number, const Values& given) {
  attributes_ = {};
  json fixed = json::object();
  for (const auto& [name, value] : given)
    if (const Parameter* const parameter = space.find(name))
      fixed[name] = {{"value", value}, {"distribution", to_text(parameter->distribution)}};
  ask({{"trial", number}, {"trials", study.trials.size()}, {"given", std::move(fixed)}}, "trial");
  Values values = draw_parameters(space, given, [this](const Parameter& each, std::size_t) { return suggest(each); });
  const json attributes = ask({{"finish", number}}, "attributes");
  attributes_ = {members(attributes, "trial"), members(attributes, "study")};
  return values;
}

}  // namespace adaptdl::sched::tune
