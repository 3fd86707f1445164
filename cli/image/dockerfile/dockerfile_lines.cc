#include "image/dockerfile/dockerfile_lines.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "base/text_parts.h"

namespace adaptdl::image {
namespace {

std::string_view without_end(std::string_view line) { return line.substr(0, line.find_last_not_of("\r\n") + 1); }

std::string_view without_leading(std::string_view line, std::string_view characters) {
  return line.substr(std::min(line.find_first_not_of(characters), line.size()));
}

bool is_comment(std::string_view line) { return without_leading(line, kSpaces).starts_with('#'); }

// Returns whether the image is BuildKit's own syntax: docker/dockerfile:1 or a variant of it, from any registry.
bool is_known_syntax(std::string_view image) {
  std::string_view name = image.substr(0, image.find_first_of(" @"));
  if (const std::size_t colon = name.rfind(':');
      colon != std::string_view::npos && name.find('/', colon) == std::string_view::npos)
    name = name.substr(0, colon);
  for (const std::string_view known : {"docker/dockerfile", "docker/dockerfile-upstream"})
    if (name == known || (name.ends_with(known) && name[name.size() - known.size() - 1] == '/')) return true;
  return false;
}

bool is_check_option(std::string_view option) {
  const std::string_view name = trimmed(option.substr(0, option.find('=')));
  if (option.find('=') == std::string_view::npos) return false;
  const std::string_view value = trimmed(option.substr(option.find('=') + 1));
  if (name == "error") return value == "true" || value == "false" || value == "1" || value == "0";
  return name == "skip" || name == "experimental";
}

}  // namespace

DockerfileLines::DockerfileLines(std::string_view text, const std::string& file, int first, bool directives)
    : rest_(text), file_(file), line_(first - 1), directives_(directives) {
  if (rest_.starts_with("\xef\xbb\xbf")) rest_.remove_prefix(3);
}

void DockerfileLines::fail(int line, std::string_view why) const {
  throw PlacedError(one_line(fmt::format("{}:{}: {}", file_, line, why)));
}

std::optional<std::string_view> DockerfileLines::read() {
  if (rest_.empty()) return {};
  const std::size_t end = rest_.find('\n');
  const std::string_view line = rest_.substr(0, end == std::string_view::npos ? end : end + 1);
  rest_.remove_prefix(line.size());
  ++line_;
  return line;
}

// Directives come before all other lines, even comments.
bool DockerfileLines::take_directive(std::string_view line) {
  if (!directives_) return false;
  directives_ = false;
  if (!line.starts_with('#')) return false;
  line = trimmed(line.substr(1));
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string name = lower(trimmed(line.substr(0, equals)));
  const std::string value(trimmed(line.substr(equals + 1)));
  if ((name != "syntax" && name != "escape" && name != "check") || value.empty()) return false;
  directives_ = true;
  if (!seen_.insert(name).second) fail(line_, fmt::format("duplicate directive '{}'", name));
  apply_directive(name, value);
  return true;
}

void DockerfileLines::apply_directive(const std::string& name, const std::string& value) {
  if (name == "syntax" && !is_known_syntax(value))
    fail(line_, fmt::format("unsupported syntax '{}': expected docker/dockerfile", value));
  if (name == "escape") {
    if (value != "\\" && value != "`") fail(line_, fmt::format("invalid escape '{}': expected \\ or `", value));
    escape_ = value[0];
  }
  if (name == "check")
    for (const std::string& option : split(value, ';'))
      if (!is_check_option(option))
        fail(line_, fmt::format("unknown check option '{}': expected skip=RULE,…, error=true or experimental=RULE,…",
                                trimmed(option)));
}

// Removes the escape character at the end of a line, unless it is itself escaped. Returns whether there was one.
bool DockerfileLines::take_continuation(std::string_view& line) const {
  const std::size_t last = line.find_last_not_of(" \t");
  if (last == std::string_view::npos || line[last] != escape_) return false;
  if (last > 0 && line[last - 1] == escape_) return false;
  line = line.substr(0, last);
  return true;
}

std::optional<DockerfileLines::Logical> DockerfileLines::next() {
  while (const auto read_line = read()) {
    std::string_view line = without_leading(without_end(*read_line), kSpaces);
    if (take_directive(line) || is_comment(line) || line.empty()) continue;
    Logical logical{{line_, line_}, ""};
    bool goes_on = take_continuation(line);
    logical.text = line;
    while (goes_on) {
      const auto further = read();
      if (!further) break;
      line = without_end(*further);
      if (is_comment(line) || trimmed(line).empty()) continue;
      goes_on = take_continuation(line);
      logical.text += line;
    }
    logical.lines.last = line_;
    if (trimmed(logical.text).empty()) fail(logical.lines.first, "nothing follows the line continuation");
    return logical;
  }
  return {};
}

std::string DockerfileLines::heredoc(const std::string& name, bool strip_tabs, Lines& lines) {
  std::string content;
  while (const auto line = read()) {
    lines.last = line_;
    const std::string_view end = without_end(*line);
    if ((strip_tabs ? without_leading(end, "\t") : end) == name) return content;
    content += *line;
  }
  fail(lines.first, fmt::format("unterminated heredoc '<<{}': expected a line with only '{}'", name, name));
}

}  // namespace adaptdl::image
