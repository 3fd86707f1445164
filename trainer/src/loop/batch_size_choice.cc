#include "loop/batch_size_choice.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "adaptdl/metrics.h"

namespace adaptdl::internal {

namespace {

constexpr double kWorthwhile = 1.05;  // gain in goodput that justifies another batch size

// The first fit is due after kFirstFit seconds or kFirstFitSteps steps. Later intervals double from kFirstFit to
// kMaxDistance.
constexpr double kFirstFit = 0.5;
constexpr std::uint64_t kFirstFitSteps = 20;
constexpr double kMaxDistance = 30;
constexpr double kHintsEvery = 30;

BatchSizeDecider& decider() {
  static auto* const instance = new BatchSizeDecider;
  return *instance;
}

}  // namespace

BatchSize even_batch_size(const BatchSizeRange& range, int replicas) {
  const auto& limits = range.limits;
  const auto share = divide_up(range.batch_size, static_cast<std::size_t>(replicas));
  const auto pieces = limits.accumulation && limits.max_local_bsz ? divide_up(share, *limits.max_local_bsz) : 1;
  return {.local_bsz = std::max(divide_up(share, pieces), limits.min_local_bsz.value_or(1)),
          .accumulation_steps = static_cast<int>(pieces) - 1};
}

bool allows(const BatchSizeRange& range, int replicas, const BatchSize& size) {
  const auto& limits = range.limits;
  const auto even = even_batch_size(range, replicas);
  if (size == even) return true;
  const auto pieces = static_cast<std::size_t>(size.accumulation_steps) + 1;
  const auto total = size.local_bsz * pieces * static_cast<std::size_t>(replicas);
  // Rounding up to whole samples per batch adds less than one sample to each of the step's batches on each replica.
  return size.local_bsz >= limits.min_local_bsz.value_or(1) &&
         size.local_bsz <= limits.max_local_bsz.value_or(size.local_bsz) && total >= range.batch_size &&
         total < limits.max_batch_size.value_or(range.batch_size) + pieces * static_cast<std::size_t>(replicas) &&
         (size.accumulation_steps == 0 || limits.accumulation);
}

BatchSize best_batch_size(const goodput::GoodputFunction& goodput, const BatchSizeRange& range, int nodes, int replicas,
                          const std::optional<BatchSize>& present) {
  const auto even = even_batch_size(range, replicas);
  const auto least =
      even.local_bsz * static_cast<std::size_t>(replicas) * (static_cast<std::size_t>(even.accumulation_steps) + 1);
  // With this many replicas, the lower local bound leaves nothing to choose.
  if (least >= range.limits.max_batch_size.value_or(range.batch_size)) return even;
  const auto best = goodput.optimize(nodes, replicas, range.limits);
  if (best.goodput <= 0) return present.value_or(even);  // no candidate is within the bounds
  if (present) {
    const auto now =
        goodput.evaluate(nodes, replicas, static_cast<double>(present->local_bsz), present->accumulation_steps);
    if (!(best.goodput > kWorthwhile * now)) return *present;
  }
  return {.local_bsz = best.atomic_bsz, .accumulation_steps = best.accum_steps};
}

void set_batch_size_decider(BatchSizeDecider function) { decider() = std::move(function); }

bool BatchSizeChoice::holds(const BatchSizeRange& range, int replicas) const {
  return size_.local_bsz > 0 && replicas_ == replicas && (decider() || allows(range, replicas, size_));
}

BatchSize BatchSizeChoice::choose_again(const BatchSizeRange& range, int nodes, int replicas) const {
  const auto goodput = decider() ? std::nullopt : metrics::goodput_function();
  return goodput ? best_batch_size(*goodput, range, nodes, replicas, {}) : even_batch_size(range, replicas);
}

void BatchSizeChoice::begin(const BatchSize& size, int replicas) {
  size_ = size;
  replicas_ = replicas;
  by_goodput_ = decide_ = false;
  fit_steps_ = 0;
  fits_ = 0;
  last_fit_.reset();
}

void BatchSizeChoice::take_fit() {
  if (!metrics::fit_pending()) return;
  metrics::finish_fit();
  decide_ = true;
  const auto now = metrics::now();
  if (last_hints_ && now - *last_hints_ < kHintsEvery) return;
  metrics::report_hints();
  last_hints_ = now;
}

bool BatchSizeChoice::fit_due(double now) const {
  const auto passed = now - *last_fit_;
  if (fits_ == 0) return passed >= kFirstFit || fit_steps_ >= kFirstFitSteps;
  return passed >= std::min(std::ldexp(kFirstFit, std::min(fits_ - 1, 16)), kMaxDistance);
}

std::optional<BatchSize> BatchSizeChoice::propose(const std::optional<BatchSizeRange>& range, int nodes,
                                                  bool pass_ends) {
  const auto step = steps_++;
  if (decider()) {
    const auto decided = decider()(step);
    return decided ? std::optional(BatchSize{decided->first, decided->second}) : std::nullopt;
  }
  std::optional<BatchSize> proposal;
  if (range && (std::exchange(decide_, false) || pass_ends)) {
    const auto goodput = metrics::goodput_function();
    if (goodput) {
      const auto present = by_goodput_ ? std::optional(size_) : std::nullopt;
      const auto best = best_batch_size(*goodput, *range, nodes, replicas_, present);
      by_goodput_ = true;
      if (best != size_) proposal = best;
    }
  }
  const auto now = metrics::now();
  if (!last_fit_) last_fit_ = now;
  ++fit_steps_;
  if (!metrics::fit_pending() && fit_due(now)) {
    metrics::begin_fit();
    if (metrics::fit_pending()) {
      last_fit_ = now;
      fit_steps_ = 0;
      ++fits_;
    }
  }
  return proposal;
}

nlohmann::json BatchSizeChoice::save() const {
  // Clocks differ between processes, so elapsed times are saved instead.
  const auto now = metrics::now();
  const auto since = [&](const std::optional<double>& time) -> nlohmann::json {
    return time ? nlohmann::json(now - *time) : nlohmann::json();
  };
  return {{"local_bsz", size_.local_bsz},
          {"accumulation_steps", size_.accumulation_steps},
          {"replicas", replicas_},
          {"by_goodput", by_goodput_},
          {"decide", decide_},
          {"steps", steps_},
          {"fit_steps", fit_steps_},
          {"fits", fits_},
          {"since_fit", since(last_fit_)},
          {"since_hints", since(last_hints_)}};
}

void BatchSizeChoice::load(const nlohmann::json& saved) {
  saved.at("local_bsz").get_to(size_.local_bsz);
  saved.at("accumulation_steps").get_to(size_.accumulation_steps);
  saved.at("replicas").get_to(replicas_);
  saved.at("by_goodput").get_to(by_goodput_);
  saved.at("decide").get_to(decide_);
  saved.at("steps").get_to(steps_);
  saved.at("fit_steps").get_to(fit_steps_);
  saved.at("fits").get_to(fits_);
  const auto now = metrics::now();
  const auto time = [&](const char* key) {
    const auto& since = saved.at(key);
    return since.is_null() ? std::nullopt : std::optional(now - since.get<double>());
  };
  last_fit_ = time("since_fit");
  last_hints_ = time("since_hints");
}

}  // namespace adaptdl::internal
