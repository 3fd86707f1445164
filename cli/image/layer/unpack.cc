#include "image/layer/unpack.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "http/http.h"
#include "image/layer/rooted_tree.h"

namespace adaptdl::image {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kTreeDraftPrefix = ".unpack-";

[[noreturn]] void fail_unpack(std::string_view what, const fs::path& path) {
  const char* why = std::strerror(errno);
  throw Error(fmt::format("cannot {} '{}': {}", what, one_line(path.string(), 300), why));
}

// A directory next to its final path, locked while it is in use; removed unless it is committed.
class DraftDirectory {
 public:
  explicit DraftDirectory(const fs::path& final) : final_(final) {
    std::string name = final.parent_path() / fmt::format("{}{}-XXXXXX", kTreeDraftPrefix, final.filename().string());
    if (::mkdtemp(name.data()) == nullptr) fail_unpack("create a directory in", final.parent_path());
    path_ = name;
    fd_ = Fd(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd_ || ::flock(fd_.get(), LOCK_EX) != 0 || ::fchmod(fd_.get(), 0755) != 0) fail_unpack("open", path_);
  }
  ~DraftDirectory() {
    if (!path_.empty()) try {
        remove_tree(path_);
      } catch (const Error&) {  // the original error matters more
      }
  }
  DraftDirectory(const DraftDirectory&) = delete;
  DraftDirectory& operator=(const DraftDirectory&) = delete;

  Fd open() const { return Fd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0)); }

  void commit() {
    if (::rename(path_.c_str(), final_.c_str()) == 0) {
      path_.clear();
    } else if (errno != EEXIST && errno != ENOTEMPTY) {  // another process was faster
      fail_unpack("create", final_);
    }
  }

 private:
  const fs::path final_;
  fs::path path_;
  Fd fd_;
};

// Returns the attributes of a directory, or of a link to a directory, in the layers below; nullopt if there is none.
std::optional<Entry> look_below(const std::vector<fs::path>& lower, const std::string& path) {
  for (const fs::path& layer : lower) {
    Fd at(::open(layer.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!at) fail_unpack("open", layer);
    bool hides = false;  // whether this layer hides the path in the layers below
    for (std::size_t begin = 0; at && begin < path.size();) {
      const std::size_t end = std::min(path.find('/', begin), path.size());
      const std::string name = path.substr(begin, end - begin);
      begin = end + 1;
      char value = 0;
      hides = hides || (::fgetxattr(at.get(), kOverlayOpaque, &value, 1) == 1 && value == 'y');
      Fd next(::openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!next && errno != ENOENT) {
        Entry other = read_entry(at.get(), name, path);
        if (begin > path.size() && other.type == Entry::Type::kSymlink) return other;
        hides = true;
      }
      at = std::move(next);
    }
    if (at) return read_entry(at.get(), ".", path);
    if (hides) return {};
  }
  return {};
}

// The meaning of a name in a layer.
struct Meaning {
  enum class Kind { kEntry, kWhiteout, kOpaque, kNothing } kind;
  std::string path;  // the path of the entry, or the hidden path
};

Meaning meaning_of(const Entry& entry) {
  using enum Meaning::Kind;
  const PathParts parts = split_path(entry.path);
  const bool below = parts.directory.starts_with(kWhiteoutPrefix) || parts.directory.find("/.wh.") != std::string::npos;
  if (!below && !parts.name.starts_with(kWhiteoutPrefix)) {
    // Overlays mark whiteouts with a device instead of a name.
    const bool device = entry.type == Entry::Type::kCharacterDevice;
    return {device && entry.device_major == 0 && entry.device_minor == 0 ? kWhiteout : kEntry, entry.path};
  }
  if (!below && parts.name == kOpaqueName) return {kOpaque, parts.directory};
  // AUFS's internal files, which other programs ignore.
  if (entry.path.starts_with(".wh..wh.") || entry.path.find("/.wh..wh.") != std::string::npos) return {kNothing, ""};
  const std::string name = parts.name.substr(std::min(parts.name.size(), kWhiteoutPrefix.size()));
  if (below || name.empty() || name == "." || name == "..")
    throw Error(fmt::format("'{}' is not a valid name in a layer", one_line(entry.path, 200)));
  return {kWhiteout, parts.directory.empty() ? name : parts.directory + "/" + name};
}

void remove_below(const Fd& directory, const std::string& path, const Fd& top, int depth, unsigned& moved);

void remove_at(int directory, const std::string& name, const Fd& top, int depth, unsigned& moved) {
  constexpr int kMaxDepth = 64;  // each level keeps a descriptor open
  if (::unlinkat(directory, name.c_str(), 0) == 0 || errno == ENOENT) return;
  if (errno != EISDIR && errno != EPERM) fail_unpack("remove", name);
  if (depth >= kMaxDepth) {
    // Move the directory to `top`, where remove_below() finds it later.
    const std::string to = fmt::format(".removed-{}-{}", ::getpid(), moved++);
    if (::renameat(directory, name.c_str(), top.get(), to.c_str()) != 0) fail_unpack("remove", name);
    return;
  }
  // The directory's mode may deny access. Change the mode through a descriptor: the name may belong to a link that
  // cannot be removed.
  const Fd found(::openat(directory, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (found) ::chmod(fmt::format("/proc/self/fd/{}", found.get()).c_str(), 0700);
  const Fd child(::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!child) fail_unpack("remove", name);
  remove_below(child, name, top.get() < 0 ? child : top, depth + 1, moved);
  if (::unlinkat(directory, name.c_str(), AT_REMOVEDIR) != 0) fail_unpack("remove", name);
}

void remove_below(const Fd& directory, const std::string& path, const Fd& top, int depth, unsigned& moved) {
  for (bool again = true; again;) {
    again = false;
    const int copy = ::openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(copy < 0 ? nullptr : ::fdopendir(copy), &::closedir);
    if (!listing) {
      const char* why = std::strerror(errno);
      throw Error(fmt::format("cannot remove '{}': cannot list its files: {}", one_line(path, 300), why));
    }
    while (const dirent* entry = ::readdir(listing.get())) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      remove_at(directory.get(), name, top, depth, moved);
      again = true;  // entries may have been moved here
    }
  }
}

}  // namespace

Unpacked unpack_layer(const fs::path& blob, const std::string& diff_id, const fs::path& directory,
                      const UnpackOptions& options) {
  const std::string name = "layer " + (diff_id.empty() ? blob.filename().string() : diff_id);
  Unpacked result;
  DraftDirectory draft(directory);
  LayerReader layer(blob, name, options.limits, options.stop);
  RootedTree tree(draft.open(), [&](const std::string& path) {
    ++result.implicit_directories;
    if (options.await_lower) options.await_lower();
    Entry none;
    none.mode = 0755;
    return look_below(options.lower, path).value_or(none);
  });
  // Charge the bytes of the tar stream, since holes in sparse files occupy no space.
  std::uint64_t charged = 0;
  const auto charge = [&](std::uint64_t files) {
    if (options.budget == nullptr) return;
    const std::uint64_t bytes = layer.tar_bytes();
    options.budget->take(bytes - charged, files);
    charged = bytes;
  };
  const auto take = [&](const Entry& entry) {
    const Meaning meaning = meaning_of(entry);
    switch (meaning.kind) {
      case Meaning::Kind::kWhiteout:
        return tree.whiteout(meaning.path);
      case Meaning::Kind::kOpaque:
        return tree.opaque(meaning.path);
      case Meaning::Kind::kNothing:
        return;
      case Meaning::Kind::kEntry:
        break;
    }
    const auto read = [&](char* data, std::size_t size) {
      const std::size_t count = layer.read(data, size);
      charge(0);
      return count;
    };
    if (!tree.make(entry, read)) ++result.devices_left_out;
    charge(1);
  };
  for (Entry entry; layer.next(entry); ++result.entries) try {
      take(entry);
    } catch (const http::Stopped&) {
      throw;
    } catch (const Error& error) {
      const std::string_view what = error.what();
      throw Error(what.starts_with(name) ? std::string(what) : fmt::format("{}: {}", name, what));
    }
  tree.finish();
  const std::string found = layer.diff_id();
  if (!diff_id.empty() && found != diff_id)
    throw Error(fmt::format("{}: digest mismatch: the content's digest is {}", name, found));
  result.bytes = layer.tar_bytes();
  draft.commit();
  return result;
}

void remove_unpack_drafts(const fs::path& parent) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, error)) {
    if (!entry.path().filename().string().starts_with(kTreeDraftPrefix)) continue;
    const Fd fd(::open(entry.path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) remove_tree(entry.path());
  }
}

void remove_tree(const fs::path& directory) {
  unsigned moved = 0;
  remove_at(AT_FDCWD, directory, Fd(), 0, moved);
}

}  // namespace adaptdl::image
