// Text of an SVG, element by element.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::cli {

// Text as it stands in XML, in elements and in attributes. Control characters, of which XML allows none, become spaces.
std::string xml_text(std::string_view text);

// A number of pixels, with one decimal at most.
std::string pixels(double value);

// "<text …>TEXT</text>" at (x, y). `classes` style it, `anchor` is start, middle or end.
std::string svg_text(double x, double y, std::string_view text, std::string_view classes,
                     std::string_view anchor = "start");

// The subpath of a rectangle.
std::string svg_rectangle(double x, double y, double width, double height);

// "#rrggbb" of a hue in degrees, and saturation and lightness from 0 to 1.
std::string hsl_colour(double hue, double saturation, double lightness);

}  // namespace adaptdl::cli
