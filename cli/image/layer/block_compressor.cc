#include "image/layer/block_compressor.h"

#include <fmt/format.h>
#include <libdeflate.h>
#include <zstd.h>

#include <algorithm>

#include "adaptdl/error.h"

namespace adaptdl::image {
namespace {

// Blocks are large enough that compressing them independently increases the size by less than 1%.
std::size_t block_size_of(Compression compression) {
  return compression == Compression::kZstd ? std::size_t{2} << 20 : std::size_t{512} << 10;
}

int level_of(const LayerOptions& options) {
  const bool zstd = options.compression == Compression::kZstd;
  const int max_level = zstd ? 19 : 12;
  if (options.level < 0 || options.level > max_level)
    throw Error(fmt::format("invalid compression level {}: {} accepts 1 to {}", options.level, zstd ? "zstd" : "gzip",
                            max_level));
  if (options.level != 0) return options.level;
  // Gzip level 4 produces layers 3% larger than those of level 6 but is much faster, and builds are interactive.
  return zstd ? 3 : 4;
}

unsigned threads_of(const LayerOptions& options) {
  const unsigned wanted = options.threads != 0 ? options.threads : std::thread::hardware_concurrency();
  // More threads would not help, since a single thread reads and digests the input. Each thread uses a few megabytes.
  return std::clamp(wanted, 1u, options.compression == Compression::kZstd ? 8u : 16u);
}

[[noreturn]] void no_memory_to_compress() { throw Error("not enough memory to compress a layer"); }

}  // namespace

struct BlockCompressor::Block {
  std::string bytes, compressed;
  bool done = false;
  std::exception_ptr failure;
};

class BlockCompressor::Codec {
 public:
  virtual ~Codec() = default;
  virtual void compress(Block& block) = 0;
};

namespace {

struct FreeDeflate {
  void operator()(libdeflate_compressor* compressor) const { ::libdeflate_free_compressor(compressor); }
};
struct FreeZstd {
  void operator()(ZSTD_CCtx* context) const { ::ZSTD_freeCCtx(context); }
};

}  // namespace

BlockCompressor::BlockCompressor(const LayerOptions& options, Sink sink)
    : compression_(options.compression),
      level_(level_of(options)),
      max_threads_(threads_of(options)),
      block_size_(block_size_of(options.compression)),
      sink_(std::move(sink)) {}

BlockCompressor::~BlockCompressor() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
}

std::unique_ptr<BlockCompressor::Codec> BlockCompressor::make_codec() const {
  struct Gzip : Codec {
    explicit Gzip(int level) : compressor(::libdeflate_alloc_compressor(level)) {
      if (!compressor) no_memory_to_compress();
    }
    void compress(Block& block) override {
      block.compressed.resize(::libdeflate_gzip_compress_bound(compressor.get(), block.bytes.size()));
      block.compressed.resize(::libdeflate_gzip_compress(compressor.get(), block.bytes.data(), block.bytes.size(),
                                                         block.compressed.data(), block.compressed.size()));
    }
    std::unique_ptr<libdeflate_compressor, FreeDeflate> compressor;
  };
  struct Zstd : Codec {
    explicit Zstd(int of) : context(::ZSTD_createCCtx()), level(of) {
      if (!context) no_memory_to_compress();
    }
    void compress(Block& block) override {
      block.compressed.resize(::ZSTD_compressBound(block.bytes.size()));
      const std::size_t size = ::ZSTD_compressCCtx(context.get(), block.compressed.data(), block.compressed.size(),
                                                   block.bytes.data(), block.bytes.size(), level);
      if (::ZSTD_isError(size)) throw Error(fmt::format("zstd compression failed: {}", ::ZSTD_getErrorName(size)));
      block.compressed.resize(size);
    }
    std::unique_ptr<ZSTD_CCtx, FreeZstd> context;
    const int level;
  };
  struct None : Codec {
    void compress(Block& block) override { std::swap(block.compressed, block.bytes); }
  };
  if (compression_ == Compression::kGzip) return std::make_unique<Gzip>(level_);
  if (compression_ == Compression::kZstd) return std::make_unique<Zstd>(level_);
  return std::make_unique<None>();
}

std::span<char> BlockCompressor::space() {
  if (!filling_) {
    if (spare_.empty()) spare_.push_back(std::make_unique<Block>());
    filling_ = std::move(spare_.back());
    spare_.pop_back();
    filling_->done = false;
    filling_->bytes.resize(block_size_);
    filled_ = 0;
  }
  return std::span(filling_->bytes).subspan(filled_);
}

void BlockCompressor::advance(std::size_t count) {
  filled_ += count;
  if (filled_ == block_size_) submit();
}

void BlockCompressor::submit() {
  filling_->bytes.resize(filled_);
  {
    const std::scoped_lock lock(mutex_);
    blocks_.push_back(std::move(filling_));
  }
  work_.notify_one();
  if (threads_.size() < max_threads_) threads_.emplace_back([this] { work(); });
  // The queue is long enough that no worker waits while this thread reads and writes.
  while (blocks_.size() > 2 * std::size_t{max_threads_}) deliver();
}

void BlockCompressor::work() {
  std::unique_ptr<Codec> codec;
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return ending_ || begun_ < blocks_.size(); });
    if (ending_) return;
    Block& block = *blocks_[begun_++];
    lock.unlock();
    try {
      if (!codec) codec = make_codec();
      codec->compress(block);
    } catch (...) {
      block.failure = std::current_exception();
    }
    lock.lock();
    block.done = true;
    done_.notify_one();
  }
}

void BlockCompressor::deliver() {
  std::unique_ptr<Block> block;
  {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return blocks_.front()->done; });
    block = std::move(blocks_.front());
    blocks_.pop_front();
    --begun_;
  }
  if (block->failure) std::rethrow_exception(block->failure);
  sink_(block->compressed);
  spare_.push_back(std::move(block));
}

void BlockCompressor::finish() {
  if (threads_.empty() && filling_) {  // a small layer, compressed on this thread
    filling_->bytes.resize(filled_);
    make_codec()->compress(*filling_);
    sink_(filling_->compressed);
    return;
  }
  if (filling_ && filled_ > 0) submit();
  while (!blocks_.empty()) deliver();
}

}  // namespace adaptdl::image
