// Formats SVG elements.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::cli {

// Escapes text for XML elements and attributes. Control characters, which XML does not allow, become spaces.
std::string xml_text(std::string_view text);

// Formats a number of pixels with at most one decimal.
std::string pixels(double value);

// Returns "<text …>TEXT</text>" at (x, y). `classes` are CSS classes; `anchor` is start, middle or end.
std::string svg_text(double x, double y, std::string_view text, std::string_view classes,
                     std::string_view anchor = "start");

// Returns a subpath that draws a rectangle.
std::string svg_rectangle(double x, double y, double width, double height);

// Returns "#rrggbb" for a hue in degrees, and saturation and lightness from 0 to 1.
std::string hsl_colour(double hue, double saturation, double lightness);

}  // namespace adaptdl::cli
