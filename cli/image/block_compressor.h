// Compresses a stream in blocks, several at once; the output does not depend on the number of threads.
//
// Each block becomes a separate gzip member or zstd frame; their concatenation is the output. Threading: an object
// belongs to one thread, on which the sink is called; it starts threads of its own from the second block on.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "image/layer_writer.h"

namespace adaptdl::image {

class BlockCompressor {
 public:
  using Sink = std::function<void(std::string_view)>;

  // `options` gives compression, level and threads. Exceptions of the sink propagate from advance() and finish().
  BlockCompressor(const LayerOptions& options, Sink sink);
  ~BlockCompressor();
  BlockCompressor(const BlockCompressor&) = delete;
  BlockCompressor& operator=(const BlockCompressor&) = delete;

  // space() returns the buffer for the next bytes, at least one; advance() tells how many of them were written.
  std::span<char> space();
  void advance(std::size_t count);
  // Passes the remaining bytes to the sink. Must be called once.
  void finish();

 private:
  struct Block;
  class Codec;

  void submit();
  void deliver();  // passes the oldest block to the sink, once it is compressed
  void work();
  std::unique_ptr<Codec> make_codec() const;

  const Compression compression_;
  const int level_;
  const unsigned most_threads_;
  const std::size_t block_size_;
  const Sink sink_;
  std::unique_ptr<Block> filling_;
  std::size_t filled_ = 0;

  std::mutex mutex_;
  std::condition_variable work_, done_;
  bool ending_ = false;
  std::deque<std::unique_ptr<Block>> blocks_;  // in order, until they are delivered
  std::size_t begun_ = 0;                      // number of blocks that a thread has begun, from the oldest on
  std::vector<std::unique_ptr<Block>> spare_;
  std::vector<std::jthread> threads_;
};

}  // namespace adaptdl::image
