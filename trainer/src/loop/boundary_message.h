// The message that the replicas send each other at a step boundary.
#pragma once

#include <cstdint>

#include "adaptdl/collective.h"

namespace adaptdl::internal {

// The requests of a replica: a new batch size for a loader, a change of the replicas, a stop, and checkpoints.
struct BoundaryMessage {
  std::uint64_t local_bsz = 0;  // 0: no change
  std::uint32_t accumulation_steps = 0;
  std::uint32_t loader = 0;        // the loader to which the batch size applies
  std::uint32_t generation = 0;    // the generation to move to; 0: no change
  std::uint8_t signal = 0;         // the signal that requests a stop, or 0
  std::uint8_t save = 0;           // 1: SIGUSR1 has requested a checkpoint
  std::uint8_t data_end = 0;       // 1: the replica's data ends with the coming step
  std::uint8_t periodic_save = 0;  // 1: a periodic checkpoint is due
};

collective::Bytes encode(const BoundaryMessage& message);
// Throws CollectiveError unless the bytes are a message, because then the replicas are not at the same boundary.
BoundaryMessage decode_boundary_message(const collective::Bytes& bytes);

// Joins two messages. A request of any replica applies to all. If both messages contain a signal, the higher number
// applies: SIGTERM rather than SIGINT. Only rank 0, whose message comes first, sends a batch size.
collective::Bytes join_boundary_messages(const collective::Bytes& a, const collective::Bytes& b);

}  // namespace adaptdl::internal
