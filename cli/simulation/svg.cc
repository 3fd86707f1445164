#include "simulation/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace adaptdl::cli {

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return out;
}

std::string pixels(double value) {
  const double rounded = std::round(value * 10) / 10;
  return fmt::format("{:g}", rounded == 0 ? 0 : rounded);  // no "-0"
}

std::string svg_text(double x, double y, std::string_view text, std::string_view classes, std::string_view anchor) {
  return fmt::format("<text x=\"{}\" y=\"{}\" class=\"{}\"{}>{}</text>\n", pixels(x), pixels(y), classes,
                     anchor == "start" ? "" : fmt::format(" text-anchor=\"{}\"", anchor), xml_text(text));
}

std::string svg_rectangle(double x, double y, double width, double height) {
  return fmt::format("M{} {}h{}v{}h{}z", pixels(x), pixels(y), pixels(width), pixels(height), pixels(-width));
}

std::string hsl_colour(double hue, double saturation, double lightness) {
  const double chroma = saturation * std::min(lightness, 1 - lightness);
  const auto channel = [&](double n) {
    const double k = std::fmod(n + hue / 30, 12);
    const double value = lightness - chroma * std::clamp(std::min(k - 3, 9 - k), -1.0, 1.0);
    return static_cast<int>(std::lround(255 * value));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(8), channel(4));
}

}  // namespace adaptdl::cli
