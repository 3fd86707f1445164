// The terms of the step time (see adaptdl/goodput.h), shared by the goodput function and the fit.
#pragma once

#include <algorithm>

namespace adaptdl::goodput {

// Stands for zero where a logarithm or a power follows.
inline constexpr double kZero = 1e-8;

// Which parameters a configuration's synchronisation time depends on.
enum class Link { kNone, kWithinNode, kBetweenNodes };

inline Link link_of(int nodes, int replicas) noexcept {
  return nodes > 1 ? Link::kBetweenNodes : replicas > 1 ? Link::kWithinNode : Link::kNone;
}

// How often the retrogression of the synchronisation counts.
inline double retrogressions(int replicas) noexcept { return std::max<double>(replicas - 2, kZero); }

}  // namespace adaptdl::goodput
