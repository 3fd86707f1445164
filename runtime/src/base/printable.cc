#include "base/printable.h"

#include "base/utf8.h"

namespace adaptdl {
namespace {

bool is_printable(const Utf8Character& character) {
  const char32_t code = character.code;
  if (!character.valid || code < 0x20 || (code >= 0x7F && code <= 0x9F)) return false;
  const bool marks_direction = code == 0x061C || code == 0x200E || code == 0x200F;
  const bool separates_or_embeds = code >= 0x2028 && code <= 0x202E;
  const bool isolates = code >= 0x2066 && code <= 0x2069;
  return !marks_direction && !separates_or_embeds && !isolates;
}

void append_escape(std::string& out, char kind, char32_t code) {
  out += '\\';
  out += kind;
  for (int shift = kind == 'x' ? 4 : 12; shift >= 0; shift -= 4) out += "0123456789abcdef"[code >> shift & 0xF];
}

// Four hexadecimal digits suffice, because all unprintable characters are below U+10000.
std::string escaped(std::string_view text, Newlines newlines, bool json) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character character = first_utf8_character(text);
    if (is_printable(character) || (character.code == '\n' && newlines == Newlines::kKeep))
      out += text.substr(0, character.size);
    else
      append_escape(out, !json && (character.code < 0x80 || !character.valid) ? 'x' : 'u', character.code);
    text.remove_prefix(character.size);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text, Newlines newlines) { return escaped(text, newlines, false); }

std::string printable_json(std::string_view json) { return escaped(json, Newlines::kKeep, true); }

std::string one_line(std::string_view text, std::size_t max) {
  std::string line;
  for (text = text.substr(0, max); !text.empty();) {
    const Utf8Character character = first_utf8_character(text);
    if (is_printable(character) && character.code != ' ')
      line += text.substr(0, character.size);
    else if (character.valid && !line.empty() && line.back() != ' ')
      line += ' ';
    text.remove_prefix(character.size);
  }
  if (line.ends_with(' ')) line.pop_back();
  return line;
}

}  // namespace adaptdl
