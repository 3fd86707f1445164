#include "image/layer/layer_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "http/http.h"
#include "image/base/digest.h"
#include "image/layer/decompressor.h"
#include "image/layer/read_ahead.h"
#include "image/layer/tar_reader.h"

namespace adaptdl::image {
namespace {

constexpr std::uint64_t kReadAhead = std::uint64_t{1} << 20;  // in bytes; smaller files are read without a thread

Fd open_file(const std::filesystem::path& file, std::uint64_t& size) {
  // O_NONBLOCK avoids waiting for a pipe that no process writes to.
  Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) throw Error(fmt::format("cannot read the file: {}", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) throw Error("not a regular file");
  size = static_cast<std::uint64_t>(info.st_size);
  return fd;
}

}  // namespace

struct LayerReader::Impl {
  Impl(const std::filesystem::path& file, std::string called, const LayerLimits& limit, std::stop_token stopped)
      : name(std::move(called)),
        limits(limit),
        stop(std::move(stopped)),
        stream(naming([&] { return Decompressor(open_file(file, compressed)); })),
        tar([this](char* data, std::size_t size) { return pull(data, size); }) {
    if (compressed >= kReadAhead)
      ahead = std::make_unique<ReadAhead>([this](char* data, std::size_t size) { return decompress(data, size); });
    max_bytes = limits.expanded + (compressed < (std::uint64_t{1} << 40) ? compressed * limits.ratio : 0);
  }

  // Adds the file's name to errors.
  template <typename Call>
  auto naming(Call call) -> decltype(call()) {
    try {
      return call();
    } catch (const http::Stopped&) {
      throw;
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", name, error.what()));
    }
  }

  // Runs on the read-ahead thread, if there is one.
  std::size_t decompress(char* data, std::size_t size) {
    const std::size_t count = stream.read(data, size);
    digester.update({data, count});
    return count;
  }

  std::size_t pull(char* data, std::size_t size) {
    if (stop.stop_requested()) throw http::Stopped();
    const std::size_t count = ahead ? ahead->read(data, size) : decompress(data, size);
    bytes += count;
    if (bytes > max_bytes) too_large();
    return count;
  }

  [[noreturn]] void too_large() const {
    throw Error(
        fmt::format("{} bytes unpack to more than {} bytes, which is not plausible for a layer; rebuild the layer "
                    "without large sparse or zero-filled files",
                    compressed, max_bytes));
  }

  bool next(Entry& entry) {
    if (ended || !tar.next(entry)) {
      ended = true;
      return false;
    }
    if (++entries > limits.entries) throw Error(fmt::format("more than {} entries", limits.entries));
    // Holes occupy no bytes in the stream, but are read as zeros.
    contents += entry.size;
    if (entry.size > max_bytes || contents > max_bytes) too_large();
    entry.path = inside_root(entry.path);
    if (entry.type == Entry::Type::kHardLink) entry.link = inside_root(entry.link);
    if (entry.link.find('\0') != std::string::npos)
      throw Error(fmt::format("the target of the link '{}' contains a zero byte", one_line(entry.path, 200)));
    if (entry.type == Entry::Type::kSymlink && entry.link.empty())
      throw Error(fmt::format("the link '{}' has an empty target", one_line(entry.path, 200)));
    if (static_cast<std::size_t>(std::count(entry.path.begin(), entry.path.end(), '/')) >= limits.depth)
      throw Error(fmt::format("'{}' is more than {} directories deep", one_line(entry.path, 100), limits.depth));
    if (entry.path.empty() && entry.type != Entry::Type::kDirectory) throw Error("the root entry is not a directory");
    return true;
  }

  const std::string name;
  const LayerLimits limits;
  const std::stop_token stop;
  std::uint64_t compressed = 0, max_bytes = 0, bytes = 0, contents = 0, entries = 0;
  bool ended = false;
  Digester digester;
  Decompressor stream;
  TarReader tar;
  std::unique_ptr<ReadAhead> ahead;  // null if the file is small
};

LayerReader::LayerReader(const std::filesystem::path& file, std::string name, const LayerLimits& limits,
                         std::stop_token stop)
    : impl_(std::make_unique<Impl>(file, std::move(name), limits, std::move(stop))) {}

LayerReader::~LayerReader() = default;

bool LayerReader::next(Entry& entry) {
  return impl_->naming([&] { return impl_->next(entry); });
}

std::size_t LayerReader::read(char* data, std::size_t size) {
  return impl_->naming([&] { return impl_->tar.read(data, size); });
}

std::string LayerReader::diff_id() {
  char rest[16 << 10];
  impl_->naming([&] {
    while (impl_->pull(rest, sizeof rest) > 0) continue;
  });
  return impl_->digester.digest();
}

std::uint64_t LayerReader::tar_bytes() const { return impl_->bytes; }

bool is_archive(const std::filesystem::path& file) try {
  std::uint64_t size = 0;
  Decompressor stream(open_file(file, size));
  bool empty = true;
  TarReader tar([&](char* data, std::size_t room) {
    const std::size_t count = stream.read(data, room);
    empty = empty && count == 0;
    return count;
  });
  Entry first;
  // A tar stream without entries is also an archive, but an empty file is not.
  return tar.next(first) || !empty;
} catch (const Error&) {
  return false;
}

}  // namespace adaptdl::image
