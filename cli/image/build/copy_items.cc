#include "image/build/copy_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/text_parts.h"
#include "image/base/clean_path.h"
#include "image/dockerfile/path_pattern.h"
#include "image/dockerfile/values.h"

namespace adaptdl::image {
namespace {

constexpr std::size_t kMaxDirectoryDepth = 512;

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_directory(const TreeFile& file) { return file.entry.type == Entry::Type::kDirectory; }

// Finds the files that one source argument of a COPY names, following links.
class Finder {
 public:
  Finder(const FileTree& tree, const CopyStep& copy)
      : tree_(tree), parents_(copy.parents), excludes_(IgnoreFile::of_patterns(copy.excludes)) {}

  std::vector<CopySource> find(const std::string& text) {
    std::string path = clean_path("/" + text).substr(1);
    // With --parents, the part before "/./" is not part of the target.
    pivot_.clear();
    if (const std::size_t at = text.find("/./"); parents_ && at != std::string::npos)
      pivot_ = clean_path("/" + text.substr(0, at)).substr(1);
    std::vector<std::string> paths;
    if (!is_pattern(path)) {
      paths.push_back(path);
    } else {
      matched_.clear();
      match("", split(path, '/'), 0, paths);
    }
    std::vector<CopySource> sources;
    for (const std::string& each : paths) add(each, text, sources);
    return sources;
  }

 private:
  void match(const std::string& directory, const std::vector<std::string>& parts, std::size_t at,
             std::vector<std::string>& found) {
    // A pattern with several "**" can reach the same directory in more than one way.
    if (!matched_.emplace(directory, at).second) return;
    const bool last = at + 1 == parts.size();
    const std::string& part = parts[at];
    if (!is_pattern(part)) {
      const std::string path = joined_path(directory, part);
      if (last) {
        if (tree_.find(tree_.resolve_parent(path))) found.push_back(path);
      } else {
        match(path, parts, at + 1, found);
      }
      return;
    }
    if (parents_ && part == "**") {
      if (!last) match(directory, parts, at + 1, found);
      for (const TreeFile& file : tree_.list(tree_.resolve(directory))) {
        const std::string path = joined_path(directory, base_name(file.entry.path));
        if (is_directory(file)) match(path, parts, at, found);
        if (last && !is_directory(file)) found.push_back(path);
      }
      return;
    }
    const Glob glob = pattern(part);
    for (const TreeFile& file : tree_.list(tree_.resolve(directory))) {
      const std::string name = base_name(file.entry.path);
      if (!glob.matches(characters_of(name))) continue;
      if (last)
        found.push_back(joined_path(directory, name));
      else
        match(joined_path(directory, name), parts, at + 1, found);
    }
  }

  static Glob pattern(const std::string& part) {
    try {
      // Within a name, "**" means the same as "*".
      std::string plain;
      for (const char c : part)
        if (c != '*' || !plain.ends_with('*') || plain.ends_with("\\*")) plain += c;
      return path_pattern(plain);
    } catch (const Error& error) {
      throw Error(fmt::format("invalid pattern '{}': {}", part, error.what()));
    }
  }

  // Returns whether an --exclude pattern matches; `path` is relative to the source.
  bool excludes(const std::string& path) const { return !excludes_.empty() && excludes_.ignores(path); }

  void add(const std::string& path, const std::string& text, std::vector<CopySource>& sources) const {
    const std::string real = tree_.resolve(path);
    std::optional<TreeFile> file = tree_.find(real);
    if (!file) {
      if (is_pattern(text)) return;  // a dangling link, or ignored
      throw Error(fmt::format("'{}' not found in '{}', or excluded by an ignore file", one_line(text), tree_.name()));
    }
    const bool directory = is_directory(*file);
    if (text.ends_with('/') && !directory && !is_pattern(text))
      throw Error(fmt::format("'{}' is not a directory", text));
    CopySource source{.text = text, .items = {}, .directory = directory};
    std::string below = directory ? "" : base_name(path);
    if (parents_) {
      below = path;
      if (!pivot_.empty()) below = path.size() > pivot_.size() ? path.substr(pivot_.size() + 1) : "";
      if (excludes(below)) return;
      add_parents(path, below, source);
    } else if (!directory && excludes(below)) {
      return;
    }
    source.items.push_back({below, std::move(*file), ""});
    if (directory) walk(real, below, parents_ ? below : "", source, 0);
    sources.push_back(std::move(source));
  }

  // Adds the directories above a file, with their own attributes.
  void add_parents(const std::string& path, const std::string& below, CopySource& source) const {
    for (std::size_t slash = below.find('/'); slash != std::string::npos; slash = below.find('/', slash + 1)) {
      const std::string parent = path.substr(0, path.size() - below.size() + slash);
      if (std::optional<TreeFile> file = tree_.find(tree_.resolve(parent)))
        source.items.push_back({below.substr(0, slash), std::move(*file), ""});
    }
  }

  void walk(const std::string& directory, const std::string& target, const std::string& below, CopySource& source,
            std::size_t depth) const {
    if (depth > kMaxDirectoryDepth)
      throw Error(fmt::format("more than {} levels of directories in '{}'", kMaxDirectoryDepth, tree_.name()));
    for (TreeFile& file : tree_.list(directory)) {
      const std::string name = base_name(file.entry.path), path = joined_path(below, name);
      // A pattern with '!' may include something below an excluded directory again.
      const bool out = excludes(path);
      if (out && (!is_directory(file) || excludes_.skips_directory(path))) continue;
      const bool is_dir = is_directory(file);
      const std::string next = joined_path(directory, name);
      const std::size_t before = source.items.size();
      source.items.push_back({joined_path(target, name), std::move(file), ""});
      if (is_dir) walk(next, joined_path(target, name), path, source, depth + 1);
      if (out && source.items.size() == before + 1) source.items.pop_back();
    }
  }

  const FileTree& tree_;
  const bool parents_;
  const IgnoreFile excludes_;
  std::string pivot_;
  std::set<std::pair<std::string, std::size_t>>
      matched_;  // directories, each with the index of the pattern part to match there
};

}  // namespace

std::vector<CopySource> copy_sources(const FileTree& tree, const CopyStep& copy) {
  Finder finder(tree, copy);
  std::vector<CopySource> sources;
  for (const std::string& text : copy.sources) {
    if (copy.add && is_url(text)) continue;
    for (CopySource& source : finder.find(text)) sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace adaptdl::image
