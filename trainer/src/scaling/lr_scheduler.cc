#include "adaptdl/torch/lr_scheduler.h"

#include <fmt/format.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string_view>
#include <tuple>
#include <utility>

#include "adaptdl/error.h"
#include "base/counted.h"
#include "scaling/lr_scheduler_state.h"

namespace adaptdl {

namespace optim = torch::optim;
using nlohmann::json;

namespace {

void require(bool condition, std::string_view type, std::string_view what) {
  if (!condition) throw UsageError(fmt::format("{}: {}", type, what));
}

// Returns one value per parameter group. `values` contains one value for each group, or a single value for all.
std::vector<double> by_group(std::vector<double> values, const optim::Optimizer& optimizer, std::string_view type,
                             std::string_view name) {
  const auto groups = optimizer.param_groups().size();
  if (values.size() == 1) values.resize(groups, values[0]);
  require(values.size() == groups, type,
          fmt::format("{} must have one value, or one per parameter group ({}), got {} values", name, groups,
                      values.size()));
  return values;
}

// Sets the momentum of an optimizer, or beta1 of Adam and AdamW. Returns false if it has neither.
bool set_momentum(optim::OptimizerOptions& options, double value) {
  const auto set_beta1 = [&](auto& adam) { adam.betas({value, std::get<1>(adam.betas())}); };
  if (auto* sgd = dynamic_cast<optim::SGDOptions*>(&options)) {
    sgd->momentum(value);
  } else if (auto* rmsprop = dynamic_cast<optim::RMSpropOptions*>(&options)) {
    rmsprop->momentum(value);
  } else if (auto* adam = dynamic_cast<optim::AdamOptions*>(&options)) {
    set_beta1(*adam);
  } else if (auto* adamw = dynamic_cast<optim::AdamWOptions*>(&options)) {
    set_beta1(*adamw);
  } else {
    return false;
  }
  return true;
}

}  // namespace

LRSchedule::LRSchedule(optim::Optimizer& optimizer)
    : LRScheduler(optimizer), optimizer_(optimizer), base_lrs_(get_current_lrs()) {}

void LRSchedule::step_to(double position) {
  require(position >= 0 && std::isfinite(position), type(), "a position must be a finite number, 0 or more");
  apply(position);
  position_ = position;
}

// LRScheduler::step sets the rates that this function returns.
std::vector<double> LRSchedule::get_lrs() {
  apply(position_ + 1);
  position_ += 1;
  return get_current_lrs();
}

void LRSchedule::apply(double position) {
  auto& groups = optimizer_.param_groups();
  require(groups.size() == base_lrs_.size(), type(),
          "a parameter group was added to the optimizer after its scheduler was created");
  for (std::size_t group = 0; group < groups.size(); ++group)
    groups[group].options().set_lr(rate(position, group, base_lrs_[group]));
}

json LRSchedule::save() const { return {{"position", position_}, {"base_lrs", base_lrs_}}; }

std::string LRSchedule::misfit(const json& saved) const {
  const auto groups = saved.at("base_lrs").size();
  if (groups == base_lrs_.size()) return {};
  return fmt::format("the LR scheduler {} has {} in the checkpoint and {} in this program", type(),
                     counted(groups, "parameter group"), base_lrs_.size());
}

void LRSchedule::load(const json& saved) {
  saved.at("position").get_to(position_);
  saved.at("base_lrs").get_to(base_lrs_);
}

LambdaLR::LambdaLR(optim::Optimizer& optimizer, std::function<double(double)> factor)
    : LRSchedule(optimizer), factor_(std::move(factor)) {
  require(factor_ != nullptr, "LambdaLR", "the function must not be null");
  LRSchedule::step_to(0);
}

double LambdaLR::rate(double position, std::size_t, double base) const { return base * factor_(position); }

MultiStepLR::MultiStepLR(optim::Optimizer& optimizer, std::vector<double> milestones, double gamma)
    : LRSchedule(optimizer), milestones_(std::move(milestones)), gamma_(gamma) {
  std::sort(milestones_.begin(), milestones_.end());
  LRSchedule::step_to(0);
}

double MultiStepLR::rate(double position, std::size_t, double base) const {
  const auto reached = std::upper_bound(milestones_.begin(), milestones_.end(), position) - milestones_.begin();
  return base * std::pow(gamma_, static_cast<double>(reached));
}

ExponentialLR::ExponentialLR(optim::Optimizer& optimizer, double gamma) : LRSchedule(optimizer), gamma_(gamma) {
  require(gamma_ > 0, "ExponentialLR", "gamma must be above 0");
}

double ExponentialLR::rate(double position, std::size_t, double base) const {
  return base * std::pow(gamma_, position);
}

CosineAnnealingLR::CosineAnnealingLR(optim::Optimizer& optimizer, double t_max, double eta_min)
    : LRSchedule(optimizer), t_max_(t_max), eta_min_(eta_min) {
  require(t_max_ > 0, "CosineAnnealingLR", "t_max must be above 0");
}

double CosineAnnealingLR::rate(double position, std::size_t, double base) const {
  return eta_min_ + (base - eta_min_) * (1 + std::cos(std::numbers::pi * position / t_max_)) / 2;
}

OneCycleLR::OneCycleLR(optim::Optimizer& optimizer, OneCycleOptions options)
    : LRSchedule(optimizer), options_(std::move(options)) {
  options_.max_lr = by_group(std::move(options_.max_lr), optimizer, "OneCycleLR", "max_lr");
  require(options_.total_steps >= 1, "OneCycleLR", "total_steps must be 1 or more");
  require(options_.pct_start >= 0 && options_.pct_start <= 1, "OneCycleLR", "pct_start must be between 0 and 1");
  require(options_.div_factor > 0 && options_.final_div_factor > 0, "OneCycleLR",
          "div_factor and final_div_factor must be above 0");
  LRSchedule::step_to(0);
}

double OneCycleLR::along(double position, double low, double high, double last) const {
  struct Phase {
    double end, from, to;
  };
  const auto peak = options_.pct_start * options_.total_steps - 1;
  const auto end = options_.total_steps - 1;
  const bool three = options_.three_phase;
  const std::array<Phase, 3> phases{
      {{peak, low, high}, {three ? 2 * peak : end, high, three ? low : last}, {end, low, last}}};
  double begin = 0;
  for (const auto& phase : phases) {
    if (position <= phase.end) {
      const auto part = phase.end > begin ? (position - begin) / (phase.end - begin) : 1;
      if (options_.linear) return phase.from + (phase.to - phase.from) * part;
      return phase.to + (phase.from - phase.to) / 2 * (1 + std::cos(std::numbers::pi * part));
    }
    begin = phase.end;
  }
  return last;
}

double OneCycleLR::rate(double position, std::size_t group, double) const {
  const auto high = options_.max_lr[group], low = high / options_.div_factor;
  return along(position, low, high, low / options_.final_div_factor);
}

void OneCycleLR::apply(double position) {
  LRSchedule::apply(position);
  if (!options_.cycle_momentum) return;
  const auto momentum = along(position, options_.max_momentum, options_.base_momentum, options_.max_momentum);
  for (auto& group : optimizer().param_groups()) {
    require(set_momentum(group.options(), momentum), type(),
            "this optimizer has no momentum and no beta1; set cycle_momentum to false");
  }
}

LinearWarmup::LinearWarmup(optim::Optimizer& optimizer, LinearWarmupOptions options)
    : LRSchedule(optimizer), options_(options) {
  require(options_.steps >= 0, "LinearWarmup", "steps must not be negative");
  require(options_.start_factor >= 0 && options_.start_factor <= 1, "LinearWarmup",
          "start_factor must be between 0 and 1");
  LRSchedule::step_to(0);
}

LinearWarmup::LinearWarmup(optim::Optimizer& optimizer, optim::LRScheduler& then, LinearWarmupOptions options)
    : LinearWarmup(optimizer, options) {
  then_ = &then;
}

double LinearWarmup::rate(double position, std::size_t, double base) const {
  if (position >= options_.steps) return base;
  return base * (options_.start_factor + (1 - options_.start_factor) * position / options_.steps);
}

void LinearWarmup::step_to(double position) {
  require(then_ == nullptr || position <= options_.steps || dynamic_cast<LRSchedule*>(then_) != nullptr, type(),
          "step_to accepts only positions within the warm-up, because the scheduler that follows supports only step()");
  LRSchedule::step_to(position);
}

void LinearWarmup::apply(double position) {
  if (auto* schedule = dynamic_cast<LRSchedule*>(then_); schedule != nullptr && position >= options_.steps) {
    schedule->step_to(position - options_.steps);
  } else if (then_ != nullptr && position - 1 >= options_.steps) {
    then_->step();
  } else {
    LRSchedule::apply(position);  // after the warm-up, sets exactly the base rates once
  }
}

json LinearWarmup::save() const {
  auto saved = LRSchedule::save();
  if (then_ != nullptr) saved["then"] = internal::scheduler_to_json(*then_);
  return saved;
}

std::string LinearWarmup::misfit(const json& saved) const {
  if (auto misfit = LRSchedule::misfit(saved); !misfit.empty()) return misfit;
  if (saved.contains("then") != (then_ != nullptr))
    return fmt::format("after the warm-up, the checkpoint has {} LR scheduler and this program has {}",
                       saved.contains("then") ? "an" : "no", then_ != nullptr ? "one" : "none");
  return then_ == nullptr ? std::string() : internal::scheduler_misfit(saved.at("then"), *then_);
}

void LinearWarmup::load(const json& saved) {
  LRSchedule::load(saved);
  if (then_ != nullptr) internal::scheduler_from_json(saved.at("then"), *then_);
}

ReduceLROnPlateau::ReduceLROnPlateau(optim::Optimizer& optimizer, ReduceLROnPlateauOptions options)
    : LRScheduler(optimizer), optimizer_(optimizer), options_(std::move(options)) {
  options_.min_lr = by_group(std::move(options_.min_lr), optimizer, "ReduceLROnPlateau", "min_lr");
  require(options_.factor < 1, "ReduceLROnPlateau", "factor must be below 1");
  best_ = options_.maximize ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
}

bool ReduceLROnPlateau::better(double metric) const {
  const auto threshold = options_.maximize ? options_.threshold : -options_.threshold;
  const auto bar = options_.absolute_threshold ? best_ + threshold : best_ * (1 + threshold);
  return options_.maximize ? metric > bar : metric < bar;
}

void ReduceLROnPlateau::step(double metric) {
  if (better(metric)) {
    best_ = metric;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_ = 0;
  }
  if (bad_ > options_.patience) {
    reduce();
    cooldown_ = options_.cooldown;
    bad_ = 0;
  }
  ++step_count_;
}

void ReduceLROnPlateau::reduce() {
  auto& groups = optimizer_.param_groups();
  require(groups.size() == options_.min_lr.size(), type(),
          "a parameter group was added to the optimizer after its scheduler was created");
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const auto before = groups[group].options().get_lr();
    const auto reduced = std::max(before * options_.factor, options_.min_lr[group]);
    if (before - reduced > options_.eps) groups[group].options().set_lr(reduced);
  }
}

json ReduceLROnPlateau::save() const { return {{"best", best_}, {"bad", bad_}, {"cooldown", cooldown_}}; }

std::string ReduceLROnPlateau::misfit(const json&) const { return {}; }

void ReduceLROnPlateau::load(const json& saved) {
  saved.at("best").get_to(best_);
  saved.at("bad").get_to(bad_);
  saved.at("cooldown").get_to(cooldown_);
}

}  // namespace adaptdl
