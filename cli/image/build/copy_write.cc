#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "image/build/copy_plan.h"
#include "image/layer/layer_reader.h"

namespace adaptdl::image {
namespace {

// Keeps one path in each directory, so that the directories are still known.
void keep_one_per_directory(std::vector<std::string>& paths) {
  std::set<std::string> directories;
  std::erase_if(paths, [&](const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return !directories.insert(slash == std::string::npos ? "" : path.substr(0, slash)).second;
  });
}

class Writer {
 public:
  Writer(const CopyInput& input, const std::optional<Owner>& owner, LayerWriter& layer, const std::stop_token& stop)
      : input_(input), owner_(owner), layer_(layer), stop_(stop) {}

  CreatedPaths write(const PlannedCopy& plan) {
    for (const auto& [path, planned] : plan.entries) add(planned);
    for (const PlannedCopy::Archive& archive : plan.archives) unpack(archive);
    if (created_.files.size() > kMaxCreatedFiles) keep_one_per_directory(created_.files);
    return std::move(created_);
  }

 private:
  void begin(Entry& entry, bool merged) {
    if (owner_) {
      entry.uid = owner_->user;
      entry.gid = owner_->group;
    }
    (entry.type == Entry::Type::kDirectory ? (merged ? created_.merged : created_.directories)
     : entry.type == Entry::Type::kSymlink ? created_.links
                                           : created_.files)
        .push_back(entry.path);
  }

  void add(const PlannedEntry& planned) {
    Entry entry = planned.entry;
    begin(entry, input_.copy->link);
    if (entry.type != Entry::Type::kFile) return layer_.add(entry);
    if (planned.given != nullptr) return add_given(entry, *planned.given);
    const TreeFile& file = *planned.file;
    // Hard links between a stage's files are kept, since the copies also have the same owner and mode.
    if (file.links > 1 && input_.copy->from.size() > 0) {
      const auto [first, is_new] = first_.emplace(std::pair(file.stamp.device, file.stamp.inode), entry.path);
      if (!is_new) {
        entry.type = Entry::Type::kHardLink;
        entry.link = first->second;
        entry.size = 0;
        return layer_.add(entry);
      }
    }
    const Fd fd = input_.tree->open(file.entry.path, file.stamp);
    layer_.add(entry, read_content(fd.get(), input_.tree->name() + "/" + file.entry.path));
  }

  void add_given(Entry entry, const GivenFile& given) {
    if (!given.file.empty()) {
      const Fd fd(::open(given.file.c_str(), O_RDONLY | O_CLOEXEC));
      if (!fd) throw Error(one_line(fmt::format("cannot read '{}': {}", given.file.string(), std::strerror(errno))));
      return layer_.add(entry, read_content(fd.get(), given.file.string()));
    }
    entry.size = given.content.size();
    layer_.add(entry, [&given, at = std::size_t{0}](char* data, std::size_t size) mutable {
      const std::size_t count = given.content.copy(data, size, at);
      at += count;
      return count;
    });
  }

  void unpack(const PlannedCopy::Archive& archive) {
    Fd fd;
    std::string name = archive.given != nullptr ? archive.given->entry.path : archive.file->entry.path;
    if (archive.file != nullptr) fd = input_.tree->open(archive.file->entry.path, archive.file->stamp);
    LayerReader reader(
        archive.given != nullptr ? archive.given->file.string() : fmt::format("/proc/self/fd/{}", fd.get()), name, {},
        stop_);
    std::set<std::string> links, files;  // paths of the archive's entries so far
    Entry entry;
    while (reader.next(entry)) {
      const std::string inside = entry.path;
      for (std::size_t at = inside.find('/'); at != std::string::npos; at = inside.find('/', at + 1))
        if (links.contains(inside.substr(0, at)))
          throw Error(
              one_line(fmt::format("archive '{}': entry '{}' traverses a link from the same archive", name, inside)));
      if (entry.type == Entry::Type::kHardLink && !files.contains(entry.link))
        throw Error(
            one_line(fmt::format("archive '{}': entry '{}' is a hard link to '{}', which is not an earlier entry", name,
                                 inside, entry.link)));
      if (entry.type == Entry::Type::kSymlink) links.insert(inside);
      if (entry.type != Entry::Type::kDirectory) files.insert(inside);
      if (archive.at.empty() && inside.empty()) continue;
      const auto placed = [&](const std::string& path) {
        return archive.at.empty() ? path : path.empty() ? archive.at : archive.at + "/" + path;
      };
      entry.path = placed(inside);
      if (entry.type == Entry::Type::kHardLink) entry.link = placed(entry.link);
      begin(entry, true);
      layer_.add(entry, [&](char* data, std::size_t size) { return reader.read(data, size); });
    }
  }

  const CopyInput& input_;
  const std::optional<Owner>& owner_;
  LayerWriter& layer_;
  const std::stop_token& stop_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> first_;
  CreatedPaths created_;
};

}  // namespace

CreatedPaths write_copy(const PlannedCopy& plan, const CopyInput& input, const std::optional<Owner>& owner,
                        LayerWriter& layer, const std::stop_token& stop) {
  return Writer(input, owner, layer, stop).write(plan);
}

}  // namespace adaptdl::image
