// The message that the replicas send each other at a step boundary.
#pragma once

#include <cstdint>

#include "adaptdl/collective.h"

namespace adaptdl::internal {

// The signal that requests a stop, or 0; whether to save a checkpoint; and the loops' requests.
struct BoundaryMessage {
  std::uint64_t local_bsz = 0;  // 0: no change
  std::uint32_t accumulation_steps = 0;
  std::uint32_t loader = 0;
  std::uint32_t generation = 0;  // 0: no change
  std::uint8_t signal = 0;
  std::uint8_t save = 0;
  std::uint8_t data_end = 0;
  std::uint8_t periodic_save = 0;
};

collective::Bytes encode(const BoundaryMessage& message);
// Throws CollectiveError unless the bytes are a message, because then the replicas are not at the same boundary.
BoundaryMessage decode_boundary_message(const collective::Bytes& bytes);

// Joins two messages. A request of any replica applies to all. If both messages contain a signal, the higher number
// applies: SIGTERM rather than SIGINT. Only rank 0, whose message comes first, sends a batch size.
collective::Bytes join_boundary_messages(const collective::Bytes& a, const collective::Bytes& b);

}  // namespace adaptdl::internal
