#include "image/base/clean_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace adaptdl::image {

std::string clean_path(std::string_view path) {
  const bool rooted = path.starts_with('/');
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), part.size() + 1));
    if (part.empty() || part == ".") continue;
    if (part == ".." && !parts.empty() && parts.back() != "..")
      parts.pop_back();
    else if (part != ".." || !rooted)
      parts.push_back(part);
  }
  const std::string clean = fmt::format("{}{}", rooted ? "/" : "", fmt::join(parts, "/"));
  return clean.empty() ? "." : clean;
}

std::string joined_path(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : name.empty() ? directory : directory + "/" + name;
}

}  // namespace adaptdl::image
