// A list that contains each object at most once, in the order in which the objects were added. Any object can be
// removed quickly.
//
// The list does not own the objects.
#pragma once

#include <list>
#include <unordered_map>

namespace adaptdl::sched {

template <typename Thing>
class AgeList {
 public:
  // Adds the object at the end. An object that is already in the list keeps its place.
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
  // Returns nullptr if the list is empty.
  Thing* oldest() const { return order_.empty() ? nullptr : order_.front(); }
  const std::list<Thing*>& all() const { return order_; }

 private:
  std::list<Thing*> order_;
  std::unordered_map<Thing*, typename std::list<Thing*>::iterator> places_;
};

}  // namespace adaptdl::sched
