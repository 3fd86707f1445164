#include "tuner/trial_shares.h"

#include <algorithm>

#include "tune/pruner/promise.h"

namespace adaptdl::sched::tune {
namespace {

bool differs(const RunShare& sent, const RunShare& share) {
  return share.replicas != sent.replicas || share.weight > sent.weight * kWeightChange ||
         share.weight * kWeightChange < sent.weight;
}

}  // namespace

std::optional<ShareMode> find_share_mode(std::string_view name) {
  if (name == "goodput") return ShareMode::kGoodput;
  if (name == "promise") return ShareMode::kPromise;
  if (name == "equal") return ShareMode::kEqual;
  return {};
}

std::vector<int> equal_replicas(const ShareRule& rule, std::size_t trials) {
  std::vector<int> replicas;
  const int count = std::max(static_cast<int>(trials), 1);
  for (int i = 0; i < static_cast<int>(trials); ++i) {
    const int more = i < rule.devices % count ? 1 : 0;
    replicas.push_back(std::clamp(rule.devices / count + more, rule.min_replicas, rule.max_replicas));
  }
  return replicas;
}

void TrialShares::started(int number) {
  sent_.erase(number);
  std::erase(running_, number);
}

std::map<int, RunShare> TrialShares::shares(const Study& study, const std::vector<int>& running) const {
  std::map<int, RunShare> shares;
  for (const int number : running) shares[number] = {};
  if (rule_.mode == ShareMode::kPromise) {
    for (const auto& [number, weight] : promise_weights(study, running))
      shares[number].weight = std::clamp(weight, kMinRunWeight, kMaxRunWeight);
  }
  if (rule_.mode == ShareMode::kEqual) {
    const std::vector<int> replicas = equal_replicas(rule_, running.size());
    for (std::size_t i = 0; i < running.size(); ++i) shares[running[i]].replicas = replicas[i];
  }
  return shares;
}

void TrialShares::update(const Study& study, const std::vector<int>& running, bool reported) {
  if (rule_.mode == ShareMode::kGoodput || (running == running_ && !reported)) return;
  std::erase_if(sent_, [&](const auto& each) { return !std::ranges::binary_search(running, each.first); });
  for (const auto& [number, share] : shares(study, running)) {
    if (!differs(sent_[number], share)) continue;
    runner_.set_share(number, share);
    sent_[number] = share;
  }
  running_ = running;
}

}  // namespace adaptdl::sched::tune
