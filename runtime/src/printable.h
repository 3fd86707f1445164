// Text from outside, such as names and messages of an API server, an archive or a file, as it may be shown to a person.
//
// Unprintable are control characters (C0, DEL and C1), which move the cursor or change a terminal's settings; the
// Unicode characters that change the direction of text or separate lines; and bytes that are not valid UTF-8. All other
// text, ASCII or not, is printable.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace adaptdl {

enum class Newlines { kEscape, kKeep };

// Returns `text` with every unprintable character as a visible escape: `\x1b` for control characters of ASCII and for
// invalid bytes, `\u009b` and `\u202e` for others.
std::string printable(std::string_view text, Newlines newlines = Newlines::kEscape);

// Returns JSON that is equal to `json` and in which unprintable characters are escaped, as `\u009b`. Line breaks
// between values are kept. REQUIRES: valid JSON in UTF-8.
std::string printable_json(std::string_view json);

// Returns one line of printable UTF-8: at most the first `max` bytes of `text`, in which spaces and unprintable
// characters become single spaces, none of them at the ends, and invalid bytes are left out.
std::string one_line(std::string_view text, std::size_t max = 2000);

}  // namespace adaptdl
