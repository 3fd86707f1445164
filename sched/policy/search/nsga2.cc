#include "policy/search/nsga2.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace adaptdl::sched::nsga2 {
namespace {

using Front = std::vector<std::size_t>;

// Returns the individuals by front, best front first, until the fronts contain `enough` of them. Each front is sorted
// by the first objective. Points are visited in the order of the first objective, so the last point of a front has the
// front's smallest second objective, and the front dominates a new point only if its last point does. A bisection
// therefore finds the new point's front.
std::vector<Front> fronts_of(const std::vector<Objectives>& objectives, std::size_t enough) {
  Front order(objectives.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return objectives[a] < objectives[b]; });
  std::vector<Front> fronts;
  for (const std::size_t each : order) {
    const auto front = std::ranges::partition_point(
        fronts, [&](const Front& one) { return dominates(objectives[one.back()], objectives[each]); });
    (front == fronts.end() ? fronts.emplace_back() : *front).push_back(each);
  }
  std::size_t ranked = 0, used = 0;
  while (used < fronts.size() && ranked < enough) ranked += fronts[used++].size();
  fronts.resize(used);
  return fronts;
}

// REQUIRES a front that is sorted by the first objective. If several individuals have the same objectives, all but one
// have distance 0.
std::vector<double> crowding_of(const std::vector<Objectives>& objectives, const Front& front) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (front.size() <= 2) return std::vector<double>(front.size(), kInfinite);
  std::vector<std::size_t> unique;  // positions in the front
  for (std::size_t place = 0; place < front.size(); ++place)
    if (place == 0 || objectives[front[place]] != objectives[front[place - 1]]) unique.push_back(place);
  std::vector<double> crowding(front.size(), 0);
  const auto at = [&](std::size_t place) -> const Objectives& { return objectives[front[unique[place]]]; };
  const std::size_t last = unique.size() - 1;
  // Within a front, the second objective falls as the first rises, so a point has the same neighbors in both orders.
  const double spans[] = {at(last)[0] - at(0)[0], at(0)[1] - at(last)[1]};
  for (std::size_t place = 0; place <= last; ++place) {
    double distance = 0;
    for (std::size_t which = 0; which < 2; ++which) {
      if (!(spans[which] > 0)) continue;
      distance += place == 0 || place == last ? kInfinite
                                              : std::abs(at(place + 1)[which] - at(place - 1)[which]) / spans[which];
    }
    crowding[unique[place]] = distance / 2;
  }
  return crowding;
}

}  // namespace

bool dominates(const Objectives& a, const Objectives& b) { return a[0] <= b[0] && a[1] <= b[1] && a != b; }

std::vector<Standing> survivors(const std::vector<Objectives>& objectives, std::size_t count, Random& random) {
  std::vector<Standing> all;
  const std::vector<Front> fronts = fronts_of(objectives, count);
  for (std::size_t rank = 0; rank < fronts.size(); ++rank) {
    const std::vector<double> crowding = crowding_of(objectives, fronts[rank]);
    std::vector<Standing> members;
    for (std::size_t place = 0; place < fronts[rank].size(); ++place)
      members.push_back({fronts[rank][place], rank, crowding[place]});
    if (all.size() + members.size() > count) {
      random.shuffle(members);
      std::ranges::stable_sort(members, [](const Standing& a, const Standing& b) { return a.crowding > b.crowding; });
      members.resize(count - all.size());
    }
    all.insert(all.end(), members.begin(), members.end());
  }
  return all;
}

std::vector<std::size_t> tournaments(const std::vector<Objectives>& objectives, const std::vector<double>& crowding,
                                     std::size_t count, Random& random) {
  std::vector<std::size_t> deck(objectives.size()), winners;
  std::iota(deck.begin(), deck.end(), std::size_t{0});
  std::size_t dealt = deck.size();
  const auto deal = [&] {
    if (dealt == deck.size()) {
      random.shuffle(deck);
      dealt = 0;
    }
    return deck[dealt++];
  };
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t a = deal(), b = deal();
    bool first = dominates(objectives[a], objectives[b]);
    if (!first && !dominates(objectives[b], objectives[a]))
      first = crowding[a] == crowding[b] ? random.below(2) == 0 : crowding[a] > crowding[b];
    winners.push_back(first ? a : b);
  }
  return winners;
}

}  // namespace adaptdl::sched::nsga2
