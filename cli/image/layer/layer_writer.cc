#include "image/layer/layer_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "adaptdl/error.h"
#include "base/counted.h"
#include "base/printable.h"
#include "http/http.h"
#include "image/layer/block_compressor.h"
#include "image/layer/tar_header.h"

namespace adaptdl::image {
namespace {

std::string_view media_type_of(Compression compression) {
  switch (compression) {
    case Compression::kGzip:
      return media::kLayerGzip;
    case Compression::kZstd:
      return media::kLayerZstd;
    case Compression::kNone:
      break;
  }
  return media::kLayer;
}

std::string in_directory(std::string_view directory, std::string_view name) {
  return directory.empty() ? std::string(name) : fmt::format("{}/{}", directory, name);
}

}  // namespace

struct LayerWriter::Impl {
  Impl(const BlobStore& store, const LayerOptions& of, std::stop_token stopped)
      : options(of),
        stop(std::move(stopped)),
        draft(store),
        compressor(of, [this](std::string_view bytes) { draft.write(bytes); }) {}

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::span<char> space = compressor.space();
      const std::size_t count = std::min(space.size(), bytes.size());
      std::memcpy(space.data(), bytes.data(), count);
      advance(space.first(count));
      bytes.remove_prefix(count);
    }
  }

  void write_content(const Entry& entry, const Content& content) {
    for (std::uint64_t left = entry.size; left > 0;) {
      if (stop.stop_requested()) throw http::Stopped();
      const std::span<char> space = compressor.space();
      const std::size_t count =
          content ? content(space.data(), static_cast<std::size_t>(std::min<std::uint64_t>(left, space.size()))) : 0;
      if (count == 0) changed(entry, "shorter");
      advance(space.first(count));
      left -= count;
    }
    char more = 0;
    if (content && content(&more, 1) != 0) changed(entry, "longer");
    write(std::string(tar_padding(entry.size), '\0'));
  }

  void advance(std::span<char> bytes) {
    tar.update({bytes.data(), bytes.size()});
    tar_bytes += bytes.size();
    compressor.advance(bytes.size());
  }

  [[noreturn]] static void changed(const Entry& entry, std::string_view how) {
    throw Error(
        fmt::format("'{}' became {} than {} while it was being read; build again when no process is writing to it",
                    one_line(entry.path, 200), how, counted(entry.size, "byte")));
  }

  void add(Entry entry, const Content& content) {
    if (stop.stop_requested()) throw http::Stopped();
    entry.mtime = std::min(entry.mtime, options.latest_time);
    write(tar_header(entry));
    if (entry.type == Entry::Type::kFile) write_content(entry, content);
    ++entries;
  }

  // Adds the empty file that represents a removed path.
  void add_mark(std::string path) {
    Entry mark;
    mark.path = std::move(path);
    add(std::move(mark), {});
  }

  const LayerOptions options;
  const std::stop_token stop;
  BlobStore::Draft draft;
  Digester tar;
  std::uint64_t tar_bytes = 0;
  std::size_t entries = 0;
  BlockCompressor compressor;
};

LayerWriter::LayerWriter(const BlobStore& store, const LayerOptions& options, std::stop_token stop)
    : impl_(std::make_unique<Impl>(store, options, std::move(stop))) {}

LayerWriter::~LayerWriter() = default;

void LayerWriter::add(const Entry& entry, const Content& content) {
  if (entry.path.starts_with(kWhiteoutPrefix) || entry.path.find("/.wh.") != std::string::npos)
    throw Error(fmt::format("'{}' cannot be added to an image: names that begin with '{}' mark removed files",
                            one_line(entry.path, 200), kWhiteoutPrefix));
  impl_->add(entry, content);
}

void LayerWriter::whiteout(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string_view directory = slash == std::string::npos ? "" : std::string_view(path).substr(0, slash);
  const std::string_view name = std::string_view(path).substr(slash == std::string::npos ? 0 : slash + 1);
  impl_->add_mark(in_directory(directory, fmt::format("{}{}", kWhiteoutPrefix, name)));
}

void LayerWriter::opaque(const std::string& directory) { impl_->add_mark(in_directory(directory, kOpaqueName)); }

std::size_t LayerWriter::entries() const { return impl_->entries; }

Layer LayerWriter::finish() {
  impl_->write(std::string(2 * kTarBlock, '\0'));
  impl_->compressor.finish();
  Layer layer;
  layer.media_type = media_type_of(impl_->options.compression);
  layer.size = impl_->draft.size();
  layer.digest = impl_->draft.commit();
  layer.diff_id = impl_->tar.digest();
  layer.tar_bytes = impl_->tar_bytes;
  layer.entries = impl_->entries;
  return layer;
}

}  // namespace adaptdl::image
