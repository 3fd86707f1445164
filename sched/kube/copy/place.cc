#include "kube/copy/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "adaptdl/error.h"

namespace adaptdl::kube {
namespace {

bool is_job_name(const std::string& text) {
  return !text.empty() && std::isalnum(static_cast<unsigned char>(text.front())) != 0 &&
         std::ranges::count(text, '/') <= 1 && !text.ends_with('/') && std::ranges::all_of(text, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '/';
         });
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

Place parse_place(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || !is_job_name(text.substr(0, colon))) {
    if (text.empty()) throw UsageError("cp: missing path");
    return {"", text};
  }
  const std::string path = text.substr(colon + 1);
  if (path.empty()) throw UsageError(fmt::format("cp: missing path after '{}'", text));
  return {text.substr(0, colon), path};
}

std::string base_name(const std::string& path) {
  const std::string whole = without_slashes(path);
  const std::string name = whole.substr(whole.rfind('/') + 1);
  return name == "." || name == ".." ? "" : name;
}

std::string directory_of(const std::string& path) {
  const std::string whole = without_slashes(path);
  const std::size_t slash = whole.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : whole.substr(0, slash);
}

std::string as_argument(const std::string& path) { return path.starts_with('-') ? "./" + path : path; }

std::string target_path(const std::string& source, Found source_is, const std::string& target, Found target_is) {
  if (target_is == Found::kDirectory) {
    const std::string name = base_name(source);
    if (name.empty()) return target;  // the directory's contents are copied
    return target.ends_with('/') ? target + name : target + '/' + name;
  }
  if (source_is != Found::kDirectory && target.ends_with('/'))
    throw UsageError(fmt::format("cp: directory '{}' does not exist", target));
  if (source_is == Found::kDirectory && target_is != Found::kNothing)
    throw UsageError(fmt::format("cp: '{}' is a directory, but '{}' is not", source, target));
  return without_slashes(target);
}

}  // namespace adaptdl::kube
