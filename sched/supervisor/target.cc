#include "supervisor/target.h"

#include <charconv>

namespace adaptdl::sched {
namespace {

std::optional<std::string> decode(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    unsigned char byte = 0;
    if (i + 2 >= text.size()) return {};
    const char* digits = text.data() + i + 1;
    if (std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) return {};
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

// Calls `each` with each part between separators until it returns false. Returns whether `each` returned true for
// all parts.
template <typename Each>
bool for_each_part(std::string_view text, char separator, const Each& each) {
  for (;;) {
    const std::size_t end = text.find(separator);
    if (!each(text.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::optional<Target> parse_target(std::string_view target) {
  Target parsed;
  const std::size_t mark = target.find('?');
  std::string_view path = target.substr(0, mark);
  if (path.empty() || path.front() != '/') return {};
  path.remove_prefix(1);
  const bool path_fine = for_each_part(path, '/', [&](std::string_view part) {
    auto segment = decode(part);
    if (segment) parsed.path.push_back(std::move(*segment));
    return segment.has_value();
  });
  if (!path_fine) return {};
  if (mark == std::string_view::npos) return parsed;
  const bool query_fine = for_each_part(target.substr(mark + 1), '&', [&](std::string_view part) {
    if (part.empty()) return true;
    const std::size_t equals = part.find('=');
    auto name = decode(part.substr(0, equals));
    auto value = equals == std::string_view::npos ? std::string() : decode(part.substr(equals + 1));
    if (!name || !value) return false;
    parsed.query[*name] = std::move(*value);
    return true;
  });
  if (!query_fine) return {};
  return parsed;
}

}  // namespace adaptdl::sched
