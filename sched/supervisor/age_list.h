// Things in the order in which they came, each at most once, to be taken out from anywhere.
//
// Threading: one thread at a time. Lifetime: it owns none of them.
#pragma once

#include <list>
#include <unordered_map>

namespace adaptdl::sched {

template <typename Thing>
class AgeList {
 public:
  // Goes last if it is not there yet, else stays where it is.
  void add(Thing& thing) {
    const auto [place, added] = places_.try_emplace(&thing);
    if (added) place->second = order_.insert(order_.end(), &thing);
  }
  void remove(Thing& thing) {
    const auto place = places_.find(&thing);
    if (place == places_.end()) return;
    order_.erase(place->second);
    places_.erase(place);
  }
  // Null if there is none.
  Thing* oldest() const { return order_.empty() ? nullptr : order_.front(); }
  const std::list<Thing*>& all() const { return order_; }

 private:
  std::list<Thing*> order_;
  std::unordered_map<Thing*, typename std::list<Thing*>::iterator> places_;
};

}  // namespace adaptdl::sched
