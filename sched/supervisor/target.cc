#include "supervisor/target.h"

#include <charconv>

#include "base/text_parts.h"

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

}  // namespace

std::optional<Target> parse_target(std::string_view target) {
  Target parsed;
  const std::size_t mark = target.find('?');
  std::string_view path = target.substr(0, mark);
  if (path.empty() || path.front() != '/') return {};
  path.remove_prefix(1);
  for (const std::string& part : split(path, '/')) {
    auto segment = decode(part);
    if (!segment) return {};
    parsed.path.push_back(std::move(*segment));
  }
  if (mark == std::string_view::npos) return parsed;
  for (const std::string& part : split(target.substr(mark + 1), '&')) {
    if (part.empty()) continue;
    const std::size_t equals = part.find('=');
    auto name = decode(part.substr(0, equals));
    auto value = equals == std::string::npos ? std::string() : decode(part.substr(equals + 1));
    if (!name || !value) return {};
    parsed.query[*name] = std::move(*value);
  }
  return parsed;
}

}  // namespace adaptdl::sched
