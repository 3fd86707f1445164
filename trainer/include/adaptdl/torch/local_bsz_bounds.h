// The bounds of a data loader's batch size on one replica.
#pragma once

#include <cstddef>
#include <optional>

namespace adaptdl {

// Bounds on the number of samples per batch on one replica, for example to keep a batch within the replica's memory.
// Both bounds are optional.
struct LocalBszBounds {
  std::optional<std::size_t> min = {};  // >= 1
  std::optional<std::size_t> max = {};  // >= min
  bool operator==(const LocalBszBounds&) const = default;
};

}  // namespace adaptdl
