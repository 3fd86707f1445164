#include "metrics/profile.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace adaptdl::metrics {
namespace {

using nlohmann::json;

constexpr std::size_t kFirst = 10;  // steps that are compared with their median
constexpr double kOdd = 3;          // a step is counted as at most this many times the typical time
constexpr double kFade = 1000;      // steps after which the weight of all steps is halved

// Adds a step of `seconds`, of which at most `bound` is counted; `sync` is reduced in proportion.
void accumulate(Series::Sums& sums, double seconds, double sync, double bound) {
  const double counted = std::min(seconds, bound);
  sums.count += 1;
  sums.seconds += counted;
  if (seconds > 0) sums.sync += sync * (counted / seconds);
}

}  // namespace

void Series::add(double seconds, double sync) {
  if (sums_.count > 0) {
    accumulate(sums_, seconds, sync, kOdd * sums_.seconds / sums_.count);
    if (sums_.count >= kFade) sums_ = {sums_.count / 2, sums_.seconds / 2, sums_.sync / 2};
    return;
  }
  first_.push_back({seconds, sync});
  if (first_.size() < kFirst) return;
  sums_ = sums();
  first_.clear();
}

Series::Sums Series::sums() const {
  if (first_.empty()) return sums_;
  std::vector<double> sorted;
  for (const auto& [seconds, sync] : first_) sorted.push_back(seconds);
  const auto median = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), median, sorted.end());
  Sums all;
  for (const auto& [seconds, sync] : first_) accumulate(all, seconds, sync, kOdd * *median);
  return all;
}

json Series::to_json() const {
  return {{"count", sums_.count}, {"seconds", sums_.seconds}, {"sync", sums_.sync}, {"first", first_}};
}

Series Series::from_json(const json& value) {
  Series series;
  series.sums_ = {value.at("count"), value.at("seconds"), value.at("sync")};
  value.at("first").get_to(series.first_);
  return series;
}

void Profile::record(int nodes, int replicas, std::size_t atomic_bsz, double seconds, std::optional<double> sync) {
  if (!std::isfinite(seconds) || seconds < 0) return;  // for example, the clock was set back
  Times& times = times_[{nodes, replicas, atomic_bsz}];
  if (sync)
    times.optim.add(seconds, std::clamp(*sync, 0.0, seconds));
  else
    times.accum.add(seconds, 0);
}

std::vector<goodput::Observation> Profile::observations() const {
  std::vector<goodput::Observation> all;
  for (const auto& [key, times] : times_) {
    const Series::Sums accum = times.accum.sums(), optim = times.optim.sums();
    if (optim.count == 0) continue;
    const double grad = (accum.seconds + optim.seconds - optim.sync) / (accum.count + optim.count);
    if (grad > 0 && optim.seconds > 0)
      all.push_back({key.nodes, key.replicas, key.atomic_bsz, grad, optim.seconds / optim.count});
  }
  return all;
}

int Profile::max_replicas() const {
  int most = 0;
  for (const auto& [key, times] : times_) most = std::max(most, key.replicas);
  return most;
}

json Profile::to_json() const {
  json all = json::array();
  for (const auto& [key, times] : times_)
    all.push_back({{"nodes", key.nodes},
                   {"replicas", key.replicas},
                   {"atomic_bsz", key.atomic_bsz},
                   {"accum", times.accum.to_json()},
                   {"optim", times.optim.to_json()}});
  return all;
}

Profile Profile::from_json(const json& value) {
  Profile profile;
  for (const json& each : value) {
    const Key key{each.at("nodes"), each.at("replicas"), each.at("atomic_bsz")};
    profile.times_[key] = {Series::from_json(each.at("accum")), Series::from_json(each.at("optim"))};
  }
  return profile;
}

}  // namespace adaptdl::metrics
