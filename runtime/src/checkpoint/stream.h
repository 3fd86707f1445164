// All states of a process as one stream of bytes: a checkpoint's content without the ranks' parts, sent to another
// process instead of a disk.
//
// The stream consists of the length of the head (8 bytes, little-endian), the head (JSON: replicas, and each state with
// the names and sizes of its files), and the files one after another, small states first. It has no version, because
// both ends are the same build of one program.
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

// Writes all states, or only those in `names`, to `sink`. `replicas` is the number of replicas that share them.
void write_states(Sink& sink, int replicas, const std::set<std::string>* names = nullptr);

// The receiving end. Bytes may be read in any order, but each byte only once. Bytes that are read in the order of their
// arrival are written directly to the reader's buffer; large tensors should be read this way. Bytes that arrive before
// they are requested are held in memory.
//
// Threading: a stream must be used by one thread at a time.
class StateStream {
 public:
  using Source = std::function<void(std::span<std::byte>)>;  // fills the span, or throws

  explicit StateStream(Source source) : source_(std::move(source)) {}

  // Reads the bytes that begin at `at`. Throws Damage if they were read before, and whatever the source throws.
  void read(std::uint64_t at, std::span<std::byte> out);
  // Receives the rest of the stream, after which the sender is no longer needed.
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
  std::uint64_t end_ = 0;               // end of the files
  std::map<std::uint64_t, Kept> kept_;  // by the position of their first byte
};

// Returns the states in a stream. The head is read immediately, and the files when they are requested. Throws
// CheckpointError if the stream is malformed.
Snapshot read_states(const std::shared_ptr<StateStream>& stream);

}  // namespace adaptdl::checkpoint
