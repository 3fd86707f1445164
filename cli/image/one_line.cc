#include "image/one_line.h"

#include <nlohmann/json.hpp>

namespace adaptdl::image {

std::string one_line(std::string_view text, std::size_t most) {
  std::string line;
  for (const char c : text.substr(0, most)) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (!control && c != ' ')
      line += c;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  }
  while (line.ends_with(' ')) line.pop_back();
  // Without what is no UTF-8, or half a character at the cut.
  using nlohmann::json;
  return json::parse(json(line).dump(-1, ' ', false, json::error_handler_t::ignore)).get<std::string>();
}

}  // namespace adaptdl::image
