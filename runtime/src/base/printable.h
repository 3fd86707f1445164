// Makes untrusted text, such as names and messages from an API server, an archive or a file, safe to print.
//
// The following are unprintable: control characters (C0, DEL and C1), which move the cursor or change a terminal's
// settings; the Unicode characters that change the direction of text or separate lines; and bytes that are not valid
// UTF-8. All other text, ASCII or not, is printable.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace adaptdl {

enum class Newlines { kEscape, kKeep };

// Returns `text` with each unprintable character replaced by an escape: `\x1b` for ASCII control characters and invalid
// bytes, and `\u009b` or `\u202e` for others. With Newlines::kKeep, line feeds are kept.
std::string printable(std::string_view text, Newlines newlines = Newlines::kEscape);

// Returns the same JSON with unprintable characters escaped, for example as `\u009b`. Line breaks between values are
// kept. REQUIRES valid JSON in UTF-8.
std::string printable_json(std::string_view json);

// Returns the first `max` bytes of `text` as one line of printable UTF-8. Each run of spaces and unprintable characters
// becomes one space (or is removed, at either end of the text), and invalid bytes are removed.
std::string one_line(std::string_view text, std::size_t max = 2000);

}  // namespace adaptdl
