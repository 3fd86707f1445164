#include "image/build/file_digests.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include "adaptdl/error.h"
#include "http/http.h"
#include "image/base/digest.h"
#include "image/base/parallel.h"
#include "image/layer/build_cache.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFirstLine = "adaptdl file digests 1";
// File systems take timestamps from a coarse clock, whose steps are shorter than this (in nanoseconds).
constexpr std::int64_t kClockStep = 2'000'000'000;
constexpr std::size_t kDigestPiece = 256 << 10;

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string digest_of(const FileTree& tree, const TreeFile& file, const std::stop_token& stop) {
  const Fd fd = tree.open(file.entry.path, file.stamp);
  const Content content = read_content(fd.get(), file.entry.path);
  Digester digester;
  std::string piece(std::min<std::uint64_t>(kDigestPiece, file.entry.size + 1), '\0');
  while (const std::size_t size = content(piece.data(), piece.size())) {
    if (stop.stop_requested()) throw http::Stopped();
    digester.update(std::string_view(piece).substr(0, size));
  }
  return digester.digest();
}

}  // namespace

FileDigests::FileDigests(const FileTree& tree, fs::path memory, unsigned threads)
    : tree_(tree), memory_(std::move(memory)), threads_(threads) {
  load();
}

// After a header line, the file contains one line per file in the context: digest, device, inode, size, modification
// time, change time, and the path, which extends to the end of the line. Paths that contain a newline are not stored.
void FileDigests::load() {
  std::ifstream stream(memory_);
  std::string line;
  if (!std::getline(stream, line) || line != kFirstLine) return;
  while (std::getline(stream, line)) {
    std::istringstream words(line);
    Known known;
    words >> known.digest >> known.stamp.device >> known.stamp.inode >> known.stamp.size >> known.stamp.modified >>
        known.stamp.changed;
    if (!words || !is_digest(known.digest) || words.get() != ' ') continue;
    std::string path;
    if (std::getline(words, path)) known_[path] = std::move(known);
  }
}

void FileDigests::fill(std::vector<CopySource>& sources, const std::stop_token& stop) {
  std::vector<CopyItem*> unknown;
  for (CopySource& source : sources)
    for (CopyItem& item : source.items) {
      if (item.file.entry.type != Entry::Type::kFile) continue;
      const auto found = known_.find(item.file.entry.path);
      if (found == known_.end() || found->second.stamp != item.file.stamp) {
        unknown.push_back(&item);
      } else {
        item.digest = found->second.digest;
        found->second.asked = true;
      }
    }
  const std::int64_t begin = now();
  for_each_parallel(unknown.size(), threads_, stop, [&](std::size_t i, const std::stop_token& stopped) {
    unknown[i]->digest = digest_of(tree_, unknown[i]->file, stopped);
  });
  for (const CopyItem* item : unknown) {
    const FileStamp& stamp = item->file.stamp;
    const bool lasting = std::max(stamp.modified, stamp.changed) < begin - kClockStep;
    known_[item->file.entry.path] = {stamp, item->digest, true, lasting};
    changed_ = true;
  }
}

void FileDigests::save() {
  if (!changed_) return;
  std::string text = fmt::format("{}\n", kFirstLine);
  for (const auto& [path, known] : known_) {
    if (!known.asked || !known.lasting || path.find('\n') != std::string::npos) continue;
    const FileStamp& stamp = known.stamp;
    text += fmt::format("{} {} {} {} {} {} {}\n", known.digest, stamp.device, stamp.inode, stamp.size, stamp.modified,
                        stamp.changed, path);
  }
  try {
    write_whole(memory_, text);
  } catch (const Error&) {
    return;  // the digests will be computed again
  }
  changed_ = false;
}

}  // namespace adaptdl::image
