// Compresses a stream in blocks, several in parallel; the output does not depend on the number of threads.
//
// Each block becomes a separate gzip member or zstd frame; the output is their concatenation. Threading: an object must
// be used from one thread, which also calls the sink. Once the first block is full, it starts its own threads.
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

#include "image/layer/layer_writer.h"

namespace adaptdl::image {

class BlockCompressor {
 public:
  using Sink = std::function<void(std::string_view)>;

  // `options` specifies the compression, its level, and the number of threads. Exceptions from the sink propagate out
  // of advance() and finish().
  BlockCompressor(const LayerOptions& options, Sink sink);
  ~BlockCompressor();
  BlockCompressor(const BlockCompressor&) = delete;
  BlockCompressor& operator=(const BlockCompressor&) = delete;

  // space() returns a non-empty buffer for the next bytes; advance() reports how many bytes the caller wrote to it.
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
  const unsigned max_threads_;
  const std::size_t block_size_;
  const Sink sink_;
  std::unique_ptr<Block> filling_;
  std::size_t filled_ = 0;

  std::mutex mutex_;
  std::condition_variable work_, done_;
  bool ending_ = false;
  std::deque<std::unique_ptr<Block>> blocks_;  // in order, until they are delivered
  std::size_t begun_ = 0;                      // number of blocks, counted from the oldest, that threads have begun
  std::vector<std::unique_ptr<Block>> spare_;
  std::vector<std::jthread> threads_;
};

}  // namespace adaptdl::image
