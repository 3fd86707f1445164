// All states of a process as one stream of bytes: the content of a checkpoint without the parts of ranks, sent to
// another process instead of a disk.
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

// The receiving end. Bytes arrive in one order and may be read in another, each of them once. Bytes that are read in
// the order of their arrival go directly to the reader's buffer; large tensors should be read this way. Bytes that
// arrive before they are requested are held in memory.
//
// Threading: for use by one thread at a time.
class StateStream {
 public:
  using Source = std::function<void(std::span<std::byte>)>;  // fills the span, or throws

  explicit StateStream(Source source) : source_(std::move(source)) {}

  // Reads the bytes that begin at `at`. Throws what the source throws; Damage if they were read before.
  void read(std::uint64_t at, std::span<std::byte> out);
  // Receives the rest of the stream, so that nothing depends on the sender any more.
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

// Returns the states in such a stream. The head is read at once, the files when they are wanted. Throws CheckpointError
// if it is not such a stream.
Snapshot read_states(const std::shared_ptr<StateStream>& stream);

}  // namespace adaptdl::checkpoint
