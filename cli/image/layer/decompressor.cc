#include "image/layer/decompressor.h"

#include <bzlib.h>
#include <fmt/format.h>
#include <lzma.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"

namespace adaptdl::image {
namespace {

constexpr std::size_t kInputBuffer = std::size_t{128} << 10;
constexpr std::uint64_t kXzMemory = std::uint64_t{128} << 20;

using namespace std::string_view_literals;

[[noreturn]] void damaged_stream(std::string_view format) {
  throw Error(fmt::format("the {} stream is damaged", format));
}

[[noreturn]] void no_memory_to_decompress() { throw Error("not enough memory to decompress the file"); }

}  // namespace

class Decompressor::Codec {
 public:
  virtual ~Codec() = default;
  // Decompresses as much as possible from `input` to `output`, and advances both. Returns true at the end of a member
  // or frame, after which another may begin.
  virtual bool step(std::string_view& input, char*& output, std::size_t& room) = 0;
};

namespace {

// zlib, bzip2 and xz have the same stream structure under different names.
template <typename Stream, typename Byte>
class StreamCodec : public Decompressor::Codec {
 public:
  bool step(std::string_view& input, char*& output, std::size_t& room) override {
    // bzip2's input pointer is not const.
    stream_.next_in = reinterpret_cast<Byte*>(const_cast<char*>(input.data()));
    stream_.avail_in = static_cast<decltype(stream_.avail_in)>(input.size());
    stream_.next_out = reinterpret_cast<std::remove_const_t<Byte>*>(output);
    const std::size_t capacity = std::min<std::size_t>(room, std::size_t{1} << 30);
    stream_.avail_out = static_cast<decltype(stream_.avail_out)>(capacity);
    const bool ended = run();
    input.remove_prefix(input.size() - static_cast<std::size_t>(stream_.avail_in));
    const std::size_t count = capacity - static_cast<std::size_t>(stream_.avail_out);
    output += count;
    room -= count;
    return ended;
  }

 protected:
  virtual bool run() = 0;
  Stream stream_{};
};

class Gzip : public StreamCodec<z_stream, Bytef> {
 public:
  Gzip() {
    if (::inflateInit2(&stream_, 15 + 16) != Z_OK) no_memory_to_decompress();
  }
  ~Gzip() override { ::inflateEnd(&stream_); }

 protected:
  bool run() override {
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      ::inflateReset(&stream_);
      return true;
    }
    if (result == Z_MEM_ERROR) no_memory_to_decompress();
    if (result != Z_OK && result != Z_BUF_ERROR) damaged_stream("gzip");
    return false;
  }
};

class Bzip2 : public StreamCodec<bz_stream, char> {
 public:
  Bzip2() { begin(); }
  ~Bzip2() override { ::BZ2_bzDecompressEnd(&stream_); }

 protected:
  bool run() override {
    const int result = ::BZ2_bzDecompress(&stream_);
    if (result == BZ_STREAM_END) {
      const bz_stream before = stream_;
      ::BZ2_bzDecompressEnd(&stream_);
      begin();
      stream_.avail_in = before.avail_in;
      stream_.avail_out = before.avail_out;
      return true;
    }
    if (result == BZ_MEM_ERROR) no_memory_to_decompress();
    if (result != BZ_OK) damaged_stream("bzip2");
    return false;
  }

 private:
  void begin() {
    stream_ = {};
    if (::BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) no_memory_to_decompress();
  }
};

class Xz : public StreamCodec<lzma_stream, const std::uint8_t> {
 public:
  Xz() { begin(); }
  ~Xz() override { ::lzma_end(&stream_); }

 protected:
  bool run() override {
    const lzma_ret result = ::lzma_code(&stream_, LZMA_RUN);
    if (result == LZMA_STREAM_END) {
      begin();
      return true;
    }
    if (result == LZMA_MEM_ERROR) no_memory_to_decompress();
    if (result == LZMA_MEMLIMIT_ERROR)
      throw Error(fmt::format("the xz stream needs more than {} MiB of memory to decompress", kXzMemory >> 20));
    if (result != LZMA_OK && result != LZMA_BUF_ERROR) damaged_stream("xz");
    return false;
  }

 private:
  void begin() {
    const lzma_stream before = stream_;
    if (::lzma_stream_decoder(&stream_, kXzMemory, 0) != LZMA_OK) no_memory_to_decompress();
    stream_.avail_in = before.avail_in;
    stream_.avail_out = before.avail_out;
  }
};

class Zstd : public Decompressor::Codec {
 public:
  Zstd() : context_(::ZSTD_createDCtx()) {
    if (!context_) no_memory_to_decompress();
  }
  bool step(std::string_view& input, char*& output, std::size_t& room) override {
    ZSTD_inBuffer in{input.data(), input.size(), 0};
    ZSTD_outBuffer out{output, room, 0};
    const std::size_t result = ::ZSTD_decompressStream(context_.get(), &out, &in);
    if (::ZSTD_isError(result)) damaged_stream("zstd");
    input.remove_prefix(in.pos);
    output += out.pos;
    room -= out.pos;
    return result == 0;
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ::ZSTD_freeDCtx(context); }
  };
  std::unique_ptr<ZSTD_DCtx, Free> context_;
};

std::unique_ptr<Decompressor::Codec> codec_for(std::string_view start) {
  if (start.starts_with("\x1f\x8b"sv)) return std::make_unique<Gzip>();
  if (start.starts_with("BZh"sv)) return std::make_unique<Bzip2>();
  if (start.starts_with("\xfd"
                        "7zXZ\0"sv))
    return std::make_unique<Xz>();
  // A Zstandard stream begins with a frame, or a skippable frame.
  if (start.starts_with("\x28\xb5\x2f\xfd"sv)) return std::make_unique<Zstd>();
  if (start.size() >= 4 && (start[0] & 0xf0) == 0x50 && start.substr(1).starts_with("\x2a\x4d\x18"sv))
    return std::make_unique<Zstd>();
  return nullptr;
}

}  // namespace

Decompressor::Decompressor(Fd file) : file_(std::move(file)), buffer_(kInputBuffer, '\0') {
  fill();
  codec_ = codec_for(input_);
}

Decompressor::~Decompressor() = default;

bool Decompressor::fill() {
  std::size_t size = 0;
  // The buffer is filled completely, so that the first call reads all bytes that determine the format.
  while (size < buffer_.size() && !file_ended_) {
    const ssize_t count = ::read(file_.get(), buffer_.data() + size, buffer_.size() - size);
    if (count < 0 && errno != EINTR) throw Error(fmt::format("cannot read the file: {}", std::strerror(errno)));
    if (count == 0) file_ended_ = true;
    if (count > 0) size += static_cast<std::size_t>(count);
  }
  input_ = std::string_view(buffer_).substr(0, size);
  return size > 0;
}

std::size_t Decompressor::read(char* data, std::size_t size) {
  char* output = data;
  std::size_t room = size;
  while (output == data && room > 0) {
    const bool more = !input_.empty() || fill();
    if (!more && (between_ || !codec_)) break;
    if (!codec_) {
      const std::size_t count = std::min(room, input_.size());
      std::memcpy(output, input_.data(), count);
      input_.remove_prefix(count);
      return count;
    }
    if (between_ && input_.front() == '\0') {  // padding after a stream; no stream begins with a zero byte
      input_.remove_prefix(1);
      continue;
    }
    const std::size_t had = input_.size();
    between_ = codec_->step(input_, output, room);
    // At the end of the file, a codec may still have output.
    if (!between_ && output == data && input_.size() == had) throw Error("the file is truncated");
  }
  return size - room;
}

}  // namespace adaptdl::image
