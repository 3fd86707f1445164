// Answers questions about goodput: each line of standard input is a JSON object, and each gets a line of standard
// output. The counterpart with the published Python package is python_goodput_peer.py, which describes the questions.
// This program also answers two questions that its counterpart does not:
//   least error fit     observations -> the 7 parameters with the smallest error, before plausibility is considered
//   fit error           perf observations -> [the error that the fit minimizes, root mean squared log error of the
//                       optimizer step times]
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "adaptdl/goodput.h"
#include "answer_lines.h"
#include "goodput/fit_error.h"
#include "goodput/perf_fit.h"

namespace {

using namespace adaptdl::goodput;
using nlohmann::json;

PerfParams perf_of(const json& question) {
  const json& perf = question.at("perf");
  return {perf.at(0), perf.at(1), perf.at(2), perf.at(3), perf.at(4), perf.at(5), perf.at(6)};
}

GoodputFunction function_of(const json& question) {
  const json& grad = question.at("grad");
  return {perf_of(question), {grad.at(0), grad.at(1)}, question.at("init")};
}

Limits limits_of(const json& question) {
  const auto number = [&](const char* name) -> std::optional<std::size_t> {
    if (question.at(name).is_null()) return {};
    return question.at(name).get<std::size_t>();
  };
  return {number("max"), number("min_local"), number("max_local"), question.at("accumulation")};
}

json answer(const PerfParams& perf) {
  return {perf.alpha_c, perf.beta_c, perf.alpha_n, perf.beta_n, perf.alpha_r, perf.beta_r, perf.gamma};
}

json answer(const Configuration& best) { return {best.goodput, best.atomic_bsz, best.accum_steps}; }

std::vector<Observation> observations_of(const json& question) {
  std::vector<Observation> all;
  for (const json& each : question.at("observations"))
    all.push_back({each.at(0), each.at(1), each.at(2), each.at(3), each.at(4)});
  return all;
}

// Returns the time of the fastest repetition in seconds, and the sum of the results, so that the compiler cannot
// optimize the work away.
template <typename Work>
json quickest(const json& question, const Work& work) {
  double least = std::numeric_limits<double>::infinity(), sum = 0;
  for (int i = 0; i < question.at("repeat").get<int>(); ++i) {
    const auto began = std::chrono::steady_clock::now();
    sum += work();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  return {least, sum};
}

json answer_to(const json& question) {
  const std::string what = question.at("what");
  if (what == "evaluate") {
    const GoodputFunction function = function_of(question);
    const int nodes = question.at("nodes"), replicas = question.at("replicas"), accum = question.at("accum");
    const double atomic = question.at("atomic");
    return {function.throughput(nodes, replicas, atomic, accum), function.efficiency(replicas * atomic * (accum + 1)),
            function.evaluate(nodes, replicas, atomic, accum)};
  }
  if (what == "fit" || what == "time fit") {
    const auto observations = observations_of(question);
    if (what == "time fit") return quickest(question, [&] { return fit_perf_params(observations).gamma; });
    return answer(fit_perf_params(observations));
  }
  if (what == "least error fit") return answer(least_error_params(observations_of(question)));
  if (what == "fit error") {
    const FitError error(observations_of(question));
    const Point at = to_coordinates(perf_of(question));
    return {error(at, nullptr), error.optim_error(at)};
  }
  const GoodputFunction function = function_of(question);
  const Limits limits = limits_of(question);
  const auto nodes = question.at("nodes").get<std::vector<int>>();
  const auto replicas = question.at("replicas").get<std::vector<int>>();
  if (what == "optimize") return answer(function.optimize(nodes.at(0), replicas.at(0), limits));
  if (what == "optimize many") {
    json all = json::array();
    for (const Configuration& each : function.optimize(nodes, replicas, limits)) all.push_back(answer(each));
    return all;
  }
  if (what == "time optimize")
    return quickest(question, [&] {
      double sum = 0;
      for (std::size_t i = 0; i < nodes.size(); ++i) sum += function.optimize(nodes[i], replicas[i], limits).goodput;
      return sum;
    });
  if (what == "time optimize many")
    return quickest(question, [&] { return function.optimize(nodes, replicas, limits).back().goodput; });
  throw std::runtime_error("no such question: " + what);
}

}  // namespace

int main() { return answer_lines("goodput_program", answer_to); }
