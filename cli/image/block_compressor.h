// Compresses a stream block by block, several blocks at once; what comes out does not depend on how many.
//
// Each block is a gzip member or zstd frame of its own; one after another, they are the stream. Threading: belongs to
// one thread, from which the sink is called; has threads of its own, from the second block on.
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

  // `options`: compression, level and threads. What the sink throws comes out of advance() and finish().
  BlockCompressor(const LayerOptions& options, Sink sink);
  ~BlockCompressor();
  BlockCompressor(const BlockCompressor&) = delete;
  BlockCompressor& operator=(const BlockCompressor&) = delete;

  // Where the next bytes go, at least one, and that `count` of them are there now.
  std::span<char> space();
  void advance(std::size_t count);
  // Gives the last bytes to the sink. Once.
  void finish();

 private:
  struct Block;
  class Codec;

  void submit();
  void deliver();  // the oldest block, when it is done
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
  std::size_t begun_ = 0;                      // of them, from the oldest on
  std::vector<std::unique_ptr<Block>> spare_;
  std::vector<std::jthread> threads_;
};

}  // namespace adaptdl::image
