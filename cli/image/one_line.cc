#include "image/one_line.h"

#include <nlohmann/json.hpp>

namespace adaptdl::image {

std::string one_line(std::string_view text, std::size_t most) {
  // Without what is no UTF-8, or half a character at the cut; before the spaces are counted, which may stand around it.
  using nlohmann::json;
  const auto characters =
      json::parse(json(text.substr(0, most)).dump(-1, ' ', false, json::error_handler_t::ignore)).get<std::string>();
  std::string line;
  for (const char c : characters) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (!control && c != ' ')
      line += c;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  }
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

}  // namespace adaptdl::image
