// The terms of the step time (see adaptdl/goodput.h), shared by the goodput function and the fit.
#pragma once

#include <algorithm>

namespace adaptdl::goodput {

// This value replaces zero in the arguments of logarithms and powers.
inline constexpr double kZero = 1e-8;

// The kind of link, which determines the parameters that apply to a configuration's synchronization time.
enum class Link { kNone, kWithinNode, kBetweenNodes };

inline Link link_of(int nodes, int replicas) noexcept {
  return nodes > 1 ? Link::kBetweenNodes : replicas > 1 ? Link::kWithinNode : Link::kNone;
}

// Returns the factor by which a link's beta is multiplied in the synchronization time.
inline double retrogressions(int replicas) noexcept { return std::max<double>(replicas - 2, kZero); }

}  // namespace adaptdl::goodput
