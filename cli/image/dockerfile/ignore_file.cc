#include "image/dockerfile/ignore_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/text_parts.h"
#include "image/base/clean_path.h"
#include "image/base/small_file.h"
#include "image/dockerfile/path_pattern.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;

}  // namespace

void IgnoreFile::add(std::string_view line) {
  std::string_view text = trimmed(line);
  if (text.empty()) return;
  const bool taken_back = text.front() == '!';
  if (taken_back) text = trimmed(text.substr(1));
  if (text.empty()) throw Error("'!' must be followed by a pattern");
  std::string path = clean_path(text);
  if (path.size() > 1 && path.front() == '/') path.erase(0, 1);
  try {
    patterns_.push_back({path_pattern(path), taken_back});
  } catch (const Error& error) {
    throw Error(fmt::format("invalid pattern '{}': {}", one_line(text, 500), error.what()));
  }
}

IgnoreFile IgnoreFile::parse(std::string_view text, const std::string& name) {
  IgnoreFile ignore;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with('#')) continue;
    try {
      ignore.add(line);
    } catch (const Error& error) {
      throw Error(one_line(fmt::format("{}:{}: {}", name, number, error.what())));
    }
  }
  return ignore;
}

IgnoreFile IgnoreFile::of_patterns(const std::vector<std::string>& patterns) {
  IgnoreFile ignore;
  for (const std::string& pattern : patterns) ignore.add(pattern);
  return ignore;
}

IgnoreFile IgnoreFile::of_build(const fs::path& context, const fs::path& dockerfile) {
  for (const fs::path& file : {fs::path(dockerfile.string() + ".dockerignore"), context / ".dockerignore"})
    if (const auto text = read_build_file(context, file, "ignore file")) return parse(*text, file.string());
  return {};
}

bool IgnoreFile::ignores(std::string_view path) const {
  const std::u32string characters = characters_of(path);
  bool ignored = false;
  for (const Pattern& pattern : patterns_)
    if (pattern.taken_back == ignored && pattern.glob.matches_path(characters)) ignored = !pattern.taken_back;
  return ignored;
}

bool IgnoreFile::skips_directory(std::string_view path) const {
  if (!ignores(path)) return false;
  const std::u32string directory = characters_of(path);
  return std::none_of(patterns_.begin(), patterns_.end(), [&](const Pattern& pattern) {
    return pattern.taken_back && pattern.glob.may_match_below(directory);
  });
}

}  // namespace adaptdl::image
