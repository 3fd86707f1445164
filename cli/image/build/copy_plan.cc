#include "image/build/copy_plan.h"

#include <fmt/format.h>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "image/base/clean_path.h"
#include "image/layer/layer_reader.h"

namespace adaptdl::image {
namespace {

struct Unknown {};

// The mode of directories that are created implicitly.
constexpr std::uint32_t kDirectoryMode = 0755;

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

class CopyPlanner {
 public:
  CopyPlanner(const CopyInput& input, const TargetFiles& to) : input_(input), copy_(*input.copy), to_(to) {}

  PlannedCopy plan() {
    std::string destination = copy_.destination.substr(1);
    into_ = copy_.destination.ends_with('/');
    while (destination.ends_with('/')) destination.pop_back();
    const std::string written = destination;
    destination = to_.resolve(destination);
    const PathKind kind = kind_of(destination);
    bool directory =
        into_ || copy_.parents || kind == PathKind::kDirectory || input_.sources.size() + input_.given.size() > 1;
    for (const CopySource& source : input_.sources) directory = directory || source.directory || is_archive_of(source);
    if (directory && (kind == PathKind::kOther || kind == PathKind::kLink))
      throw Error(fmt::format("'/{}' exists and is not a directory", written));
    make_directories(directory && !may_bring_it(destination) ? destination : parent_of(destination));
    for (const CopySource& source : input_.sources) add(source, destination, directory);
    for (const GivenFile& given : input_.given) {
      if (unpacks(given)) {
        make_directories(destination);
        plan_.archives.push_back({nullptr, &given, destination});
        continue;
      }
      PlannedEntry planned{given.entry, nullptr, &given};
      add(directory ? joined_path(destination, given.entry.path) : destination, std::move(planned));
    }
    return std::move(plan_);
  }

 private:
  // Returns whether a source directory becomes the destination and keeps its own attributes.
  bool may_bring_it(const std::string& destination) const {
    return !into_ && !destination.empty() && !input_.sources.empty() && input_.sources.front().directory &&
           !copy_.parents && !input_.sources.front().items.front().file.entry.path.empty();
  }
  bool is_archive_of(const CopySource& source) const {
    if (!input_.unpack || source.directory) return false;
    const TreeFile& file = source.items.back().file;
    if (file.entry.type != Entry::Type::kFile || file.entry.size == 0) return false;
    const Fd fd = input_.tree->open(file.entry.path, file.stamp);
    return is_archive(fmt::format("/proc/self/fd/{}", fd.get()));
  }
  bool unpacks(const GivenFile& given) const {
    return !given.file.empty() && copy_.unpack.value_or(false) && is_archive(given.file);
  }

  [[noreturn]] static void fail_directory(const std::string& path) {
    throw Error(one_line(fmt::format("cannot create the directory '/{}': a file or link already exists there", path)));
  }

  PathKind kind_of(const std::string& path) const {
    const PathKind kind = to_.find(path);
    if (kind == PathKind::kUnknown) throw Unknown();
    return kind;
  }

  // Plans the directories that do not exist among `path` and the directories above it.
  void make_directories(const std::string& path) {
    PathKind kind = PathKind::kDirectory;
    for (std::size_t end = 0; end != std::string::npos && !path.empty();) {
      end = path.find('/', end + 1);
      const std::string each = path.substr(0, end);
      if (kind != PathKind::kMissing) kind = kind_of(each);
      if (kind == PathKind::kOther || kind == PathKind::kLink) fail_directory(each);
      if (kind != PathKind::kMissing) continue;
      PlannedEntry planned;
      planned.entry = {.path = each, .type = Entry::Type::kDirectory, .mode = kDirectoryMode, .mtime = input_.date};
      plan_.entries.emplace(each, std::move(planned));
    }
  }

  void add(const CopySource& source, const std::string& destination, bool directory) {
    if (is_archive_of(source)) {
      make_directories(destination);
      plan_.archives.push_back({&source.items.back().file, nullptr, destination});
      return;
    }
    for (const CopyItem& item : source.items) {
      const std::string path = source.directory || directory || item.target.find('/') != std::string::npos
                                   ? joined_path(destination, item.target)
                                   : destination;
      // The attributes of a context's root directory are arbitrary, so they are not copied.
      if (path == destination && item.file.entry.path.empty()) {
        make_directories(destination);
        continue;
      }
      PlannedEntry planned{item.file.entry, &item.file, nullptr};
      add(path, std::move(planned));
    }
  }

  void add(const std::string& path, PlannedEntry planned) {
    if (path.empty()) return;
    Entry& entry = planned.entry;
    const bool is_directory = entry.type == Entry::Type::kDirectory;
    const auto known = plan_.entries.find(path);
    const bool new_parent = known == plan_.entries.end() && plan_.entries.contains(parent_of(path));
    PathKind kind = PathKind::kMissing;
    if (known != plan_.entries.end())
      kind = known->second.entry.type == Entry::Type::kDirectory ? PathKind::kDirectory : PathKind::kOther;
    else if (!new_parent)
      kind = is_directory ? kind_of(path) : to_.find(path);
    if (is_directory && kind == PathKind::kDirectory) return;
    if (is_directory && kind != PathKind::kMissing) fail_directory(path);
    if (!is_directory && kind == PathKind::kDirectory)
      throw Error(one_line(fmt::format("cannot create the file '/{}': a directory already exists there", path)));
    entry.path = path;
    if (copy_.mode && entry.type != Entry::Type::kSymlink) entry.mode = copy_.mode->apply(entry.mode, is_directory);
    plan_.entries.insert_or_assign(path, std::move(planned));
  }

  const CopyInput& input_;
  const CopyStep& copy_;
  const TargetFiles& to_;
  bool into_ = false;
  PlannedCopy plan_;
};

}  // namespace

TargetFiles target_files(const StageFiles& files) {
  return {[&files](const std::string& path) { return files.find(path); }, [](const std::string& path) { return path; }};
}

TargetFiles target_files(const FileTree& files) {
  return {[&files](const std::string& path) {
            const std::optional<TreeFile> file = files.find(path);
            if (!file) return PathKind::kMissing;
            return file->entry.type == Entry::Type::kDirectory ? PathKind::kDirectory
                   : file->entry.type == Entry::Type::kSymlink ? PathKind::kLink
                                                               : PathKind::kOther;
          },
          [&files](const std::string& path) { return files.resolve(path); }};
}

std::optional<PlannedCopy> plan_copy(const CopyInput& input, const TargetFiles& to) {
  try {
    return CopyPlanner(input, to).plan();
  } catch (const Unknown&) {
    return {};
  }
}

}  // namespace adaptdl::image
