// All states of a process as one stream of bytes: what a checkpoint holds but for the parts of ranks, sent to another
// process instead of a disk.
//
// The stream is the length of a head (8 bytes, little-endian), the head (JSON: replicas, and each state with the names
// and sizes of its files), and the files one after another, those of small states first. Both ends are the same build
// of one program, so it has no version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/files.h"
#include "checkpoint/snapshot.h"

namespace adaptdl::checkpoint {

// Saves the states, all or those of these names, to `sink`. `replicas`: how many share them.
void write_states(Sink& sink, int replicas, const std::set<std::string>* names = nullptr);

// The receiving end: bytes in the order in which they come, read in the order in which they are wanted, each of them
// once. What is wanted next goes straight to where it is wanted, as a large state's tensors should; what comes before
// that waits in memory.
//
// Threading: for one thread at a time.
class StateStream {
 public:
  using Source = std::function<void(std::span<std::byte>)>;  // fills what it is given, or throws

  explicit StateStream(Source source) : source_(std::move(source)) {}

  // Reads the bytes from `at` on. Throws what the source throws; Damage if they were read before.
  void read(std::uint64_t at, std::span<std::byte> out);
  // Takes all that is still to come, so that nothing depends on the sender any more.
  void fetch();

 private:
  friend Snapshot read_states(const std::shared_ptr<StateStream>& stream);

  struct Kept {
    std::vector<std::byte> bytes;
    std::uint64_t unread = 0;
  };
  void keep_until(std::uint64_t end);

  Source source_;
  std::uint64_t position_ = 0;
  std::uint64_t end_ = 0;               // of the files
  std::map<std::uint64_t, Kept> kept_;  // by where it begins
};

// The states in such a stream, whose head is read at once and whose files as they are wanted. Throws CheckpointError on
// what is no such stream.
Snapshot read_states(const std::shared_ptr<StateStream>& stream);

}  // namespace adaptdl::checkpoint
