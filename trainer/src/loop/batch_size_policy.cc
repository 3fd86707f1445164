#include "loop/batch_size_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "adaptdl/collective.h"
#include "adaptdl/env.h"
#include "adaptdl/metrics.h"
#include "base/counted.h"
#include "loop/loop_state.h"
#include "loop/step_boundary.h"
#include "support/replicas.h"

namespace adaptdl::internal {

void BatchSizePolicy::check_limits(std::size_t max_batch_size, const LocalBszBounds& bounds, bool accumulation) const {
  const auto where = [&] { return fmt::format("autoscale_batch_size of data loader '{}'", state_.name()); };
  if (max_batch_size < batch_size_) {
    throw UsageError(
        fmt::format("{}: max_batch_size {} is below the initial batch_size {}", where(), max_batch_size, batch_size_));
  }
  if (bounds.min == 0u || bounds.max == 0u)
    throw UsageError(fmt::format("{}: local batch size bounds must be at least 1 sample, got 0", where()));
  if (bounds.min && bounds.max && *bounds.min > *bounds.max) {
    throw UsageError(fmt::format("{}: the lower local batch size bound {} is above the upper bound {}", where(),
                                 *bounds.min, *bounds.max));
  }
  if (bounds.min && *bounds.min > batch_size_) {
    throw UsageError(fmt::format("{}: the lower local batch size bound {} is above the initial batch_size {}", where(),
                                 *bounds.min, batch_size_));
  }
  const auto replicas = static_cast<std::size_t>(num_replicas());
  const auto share = (batch_size_ + replicas - 1) / replicas;
  if (bounds.max && *bounds.max < share && !accumulation) {
    throw UsageError(
        fmt::format("{}: batch_size {} on {} is {} per replica, above the upper local batch size bound {}; "
                    "allow gradient accumulation, or raise the bound",
                    where(), batch_size_, counted(replicas, "replica"), share, *bounds.max));
  }
}

void BatchSizePolicy::set_limits(std::size_t max_batch_size, const LocalBszBounds& bounds, bool accumulation) {
  max_batch_size_ = max_batch_size;
  bounds_ = bounds;
  gradient_accumulation_ = accumulation;
}

void BatchSizePolicy::report() const {
  metrics::set_batch_sizes({batch_size_, {max_batch_size_, bounds_.min, bounds_.max, gradient_accumulation_}});
}

BatchSizeRange BatchSizePolicy::range() const {
  auto max_batch_size = *max_batch_size_;
  // A step with more samples than the dataset has would read some samples twice.
  const auto dataset_size = state_.position.dataset_size();
  if (dataset_size > 0) max_batch_size = std::min(max_batch_size, std::max(batch_size_, dataset_size));
  return {batch_size_, {max_batch_size, bounds_.min, bounds_.max, gradient_accumulation_}};
}

void BatchSizePolicy::choose() {
  auto& choice = state_.choice;
  const auto replicas = num_replicas();
  if (!max_batch_size_) {
    const BatchSizeRange fixed{batch_size_, {}};
    if (choice.replicas() != replicas || choice.size() != even_batch_size(fixed, replicas))
      choice.begin(even_batch_size(fixed, replicas), replicas);
    return;
  }
  if (choice.holds(range(), replicas)) return;
  // Rank 0 chooses for all replicas, because their measurements differ.
  auto size = choice.choose_again(range(), env::num_nodes(), replicas);
  nlohmann::json chosen;
  try {
    chosen = collective::broadcast({{"local_bsz", size.local_bsz}, {"accumulation_steps", size.accumulation_steps}},
                                   "batch size of " + state_.name());
  } catch (const collective::CollectiveError&) {
    recover();
    return choose();
  }
  chosen.at("local_bsz").get_to(size.local_bsz);
  chosen.at("accumulation_steps").get_to(size.accumulation_steps);
  choice.begin(size, replicas);
  state_.warm_bsz = 0;
}

std::optional<BatchSize> BatchSizePolicy::propose(bool pass_ends) {
  const bool may_change = max_batch_size_ && !step_is_invalid();
  return state_.choice.propose(may_change ? std::optional(range()) : std::nullopt, env::num_nodes(), pass_ends);
}

bool BatchSizePolicy::has_new_choice() const noexcept { return state_.choice.size() != size_; }

void BatchSizePolicy::adopt_choice() {
  replicas_ = static_cast<std::size_t>(num_replicas());
  size_ = state_.choice.size();
}

void BatchSizePolicy::save_finished() noexcept {
  state_.finished_size = size_;
  state_.finished_replicas = replicas_;
}

void BatchSizePolicy::restore_finished() noexcept {
  size_ = state_.finished_size;
  replicas_ = state_.finished_replicas;
}

std::size_t BatchSizePolicy::total() const noexcept {
  return size_.local_bsz * static_cast<std::size_t>(size_.accumulation_steps + 1) * replicas_;
}

}  // namespace adaptdl::internal
