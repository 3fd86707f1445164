// All states of a process as one stream of bytes: what a checkpoint holds but for the parts of ranks, sent to another
// process instead of a disk.
//
// The stream is the length of a head (8 bytes, little-endian), the head (JSON: replicas, and each state with the names
// and sizes of its files), and the files one after another. Both ends are the same build of one program, so it has no
// version.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>

#include "checkpoint/files.h"
#include "checkpoint/snapshot.h"

namespace adaptdl::checkpoint {

// Saves the states, all or those of these names, to `sink`. `replicas`: how many share them.
void write_states(Sink& sink, int replicas, const std::set<std::string>* names = nullptr);

// Reads such a stream into memory. `read` fills what it is given, or throws. Throws CheckpointError on what is no such
// stream.
Snapshot read_states(const std::function<void(std::span<std::byte>)>& read);

}  // namespace adaptdl::checkpoint
