#include "simulator/application.h"

#include <algorithm>
#include <limits>

namespace adaptdl::sched {

Application::Application(ApplicationData data, StepTimes step_times)
    : data_(std::move(data)), step_times_(std::move(step_times)), progress_{0} {
  for (std::size_t epoch = 0; epoch < static_cast<std::size_t>(data_.epochs); ++epoch) {
    double min_progress = std::numeric_limits<double>::infinity();
    for (const auto& [batch_size, rows] : data_.validation) min_progress = std::min(min_progress, rows[epoch].progress);
    progress_.push_back(min_progress);
  }
}

template <class Field>
double Application::between(std::size_t batch_size, std::size_t row, Field field) const {
  const auto upper = data_.validation.lower_bound(batch_size);
  if (upper == data_.validation.end()) return field(std::prev(upper)->second[row]);
  const double high = field(upper->second[row]);
  if (upper->first == batch_size || upper == data_.validation.begin()) return high;
  const auto lower = std::prev(upper);
  const double low = field(lower->second[row]);
  const auto above = static_cast<double>(batch_size - lower->first);
  const auto below = static_cast<double>(upper->first - batch_size);
  return (above * high + below * low) / static_cast<double>(upper->first - lower->first);
}

goodput::GradParams Application::grad_params(std::size_t batch_size, int epoch) const {
  const auto row = static_cast<std::size_t>(epoch);
  return {between(batch_size, row, [](const Epoch& each) { return each.grad.sqr; }),
          between(batch_size, row, [](const Epoch& each) { return each.grad.var; })};
}

double Application::iterations_after(std::size_t batch_size, int epochs) const {
  if (epochs == 0) return 0;
  return between(batch_size, static_cast<std::size_t>(epochs - 1), [](const Epoch& each) { return each.iteration; });
}

}  // namespace adaptdl::sched
