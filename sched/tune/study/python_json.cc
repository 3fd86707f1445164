#include "tune/study/python_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "adaptdl/error.h"
#include "base/foreign_json.h"
#include "base/text_parts.h"
#include "base/utf8.h"

namespace adaptdl::sched::tune {
namespace {

void append_utf8(std::string& text, char32_t code) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | code >> 6);
    add(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    add(0xE0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  } else {
    add(0xF0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3F));
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  }
}

// The ASCII characters that may appear in a string without an escape.
constexpr auto kPlain = [] {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}();

// Returns nullopt if the text is not an integer or is out of range for Whole.
template <class Whole>
std::optional<Whole> whole_number(std::string_view text) {
  Whole whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return whole;
}

void append_json(std::string& text, const nlohmann::json& value);

void append_string(std::string& text, const std::string& value) {
  text += nlohmann::json(value).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

template <class Container, class Each>
void append_members(std::string& text, const char* brackets, const Container& members, const Each& each) {
  text += brackets[0];
  bool first = true;
  for (const auto& member : members) {
    if (!first) text += ',';
    first = false;
    each(member);
  }
  text += brackets[1];
}

void append_json(std::string& text, const nlohmann::json& value) {
  if (value.is_object()) {
    append_members(text, "{}", value.items(), [&](const auto& member) {
      append_string(text, member.key());
      text += ':';
      append_json(text, member.value());
    });
  } else if (value.is_array()) {
    append_members(text, "[]", value, [&](const auto& item) { append_json(text, item); });
  } else if (value.is_string()) {
    append_string(text, value.get_ref<const std::string&>());
  } else if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const auto number = value.get<double>();
    text += std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
  } else {
    text += value.dump();
  }
}

}  // namespace

void PythonJsonReader::fail(std::string_view what) const {
  throw Error(fmt::format("invalid JSON at column {}: {}", at_ + 1, what));
}

char PythonJsonReader::peek() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return c;
    ++at_;
  }
  return '\0';
}

void PythonJsonReader::expect(char c) {
  if (peek() != c) fail(fmt::format("expected '{}'", c));
  ++at_;
}

bool PythonJsonReader::take(std::string_view word) {
  peek();
  if (text_.compare(at_, word.size(), word) != 0) return false;
  at_ += word.size();
  return true;
}

void PythonJsonReader::enter() {
  first_ = true;
  if (++depth_ > kMaxForeignJsonDepth) fail("nested too deeply");
}

void PythonJsonReader::begin_object() {
  expect('{');
  enter();
}

void PythonJsonReader::begin_array() {
  expect('[');
  enter();
}

std::optional<std::string_view> PythonJsonReader::next_key() {
  const bool first = std::exchange(first_, false);
  if (peek() == '}') {
    ++at_;
    --depth_;
    return {};
  }
  if (!first) expect(',');
  const std::string_view key = string();
  expect(':');
  return key;
}

bool PythonJsonReader::next_item() {
  const bool first = std::exchange(first_, false);
  if (peek() == ']') {
    ++at_;
    --depth_;
    return false;
  }
  if (!first) expect(',');
  return true;
}

std::string_view PythonJsonReader::string() {
  expect('"');
  const std::size_t begin = at_;
  // Almost all of a journal consists of strings without escapes.
  const auto plain_end = std::find_if_not(text_.begin() + static_cast<std::ptrdiff_t>(begin), text_.end(),
                                          [](unsigned char c) { return kPlain[c]; });
  at_ = static_cast<std::size_t>(plain_end - text_.begin());
  if (plain_end != text_.end() && *plain_end == '"') return text_.substr(begin, at_++ - begin);
  bool escaped = false, ascii = true;
  for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c < 0x20) fail("control character in a string");
    ascii = ascii && c < 0x80;
    if (c != '\\') {
      if (escaped) unescaped_ += text_[at_];
      continue;
    }
    if (!escaped) unescaped_ = text_.substr(begin, at_ - begin);
    escaped = true;
    append_escape();
  }
  if (at_ >= text_.size()) fail("unterminated string");
  const std::string_view found = escaped ? std::string_view(unescaped_) : text_.substr(begin, at_ - begin);
  if (!ascii && !is_utf8(found)) fail("string is not valid UTF-8");
  ++at_;
  return found;
}

// Reads an escape, and leaves `at_` at its last character.
void PythonJsonReader::append_escape() {
  constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  const char letter = ++at_ < text_.size() ? text_[at_] : '\0';
  if (const auto found = kLetters.find(letter); letter != '\0' && found != std::string_view::npos) {
    unescaped_ += kMeanings[found];
    return;
  }
  if (letter != 'u') fail("invalid escape");
  char32_t code = hex4();
  if (code >= 0xD800 && code < 0xDC00 && text_.compare(at_ + 1, 2, "\\u") == 0) {
    const std::size_t before = at_;
    at_ += 2;
    if (const char32_t low = hex4(); low >= 0xDC00 && low < 0xE000) {
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else {
      at_ = before;
    }
  }
  // Python strings may contain half of a surrogate pair, but UTF-8 may not.
  append_utf8(unescaped_, code >= 0xD800 && code < 0xE000 ? 0xFFFD : code);
}

unsigned PythonJsonReader::hex4() {
  unsigned code = 0;
  const std::string_view digits = text_.substr(std::min(at_ + 1, text_.size()), 4);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (error != std::errc() || end != digits.data() + 4) fail("invalid escape");
  at_ += 4;
  return code;
}

std::string_view PythonJsonReader::number_text() {
  peek();
  std::size_t end = at_;
  const auto digits = [&] {
    const std::size_t begin = end;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    if (end == begin) fail("expected a number");
  };
  const auto is = [&](std::string_view some) {
    return end < text_.size() && some.find(text_[end]) != std::string_view::npos;
  };
  if (is("-")) ++end;
  if (is("0")) {
    ++end;
  } else {
    digits();
  }
  if (is(".")) {
    ++end;
    digits();
  }
  if (is("eE")) {
    ++end;
    if (is("+-")) ++end;
    digits();
  }
  const std::string_view found = text_.substr(at_, end - at_);
  at_ = end;
  return found;
}

double PythonJsonReader::number() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const char c = peek();
  if (c == 'N' && take("NaN")) return std::numeric_limits<double>::quiet_NaN();
  if (c == 'I' && take("Infinity")) return kInfinity;
  if (c == '-' && take("-Infinity")) return -kInfinity;
  const std::string_view text = number_text();
  double number = 0;
  const auto error = std::from_chars(text.data(), text.data() + text.size(), number).ec;
  // Unlike from_chars(), strtod() distinguishes numbers that are too large from numbers that are too small, as Python
  // does.
  return error == std::errc() ? number : std::strtod(std::string(text).c_str(), nullptr);
}

// Reads the next number if it is an integer without a sign and in the range of the type.
std::optional<std::int64_t> PythonJsonReader::take_whole() {
  if (!is_digit(peek())) return {};
  const std::size_t begin = at_;
  const auto whole = whole_number<std::int64_t>(number_text());
  if (!whole) at_ = begin;
  return whole;
}

std::int64_t PythonJsonReader::integer() {
  using Limits = std::numeric_limits<std::int64_t>;
  if (const auto whole = take_whole()) return *whole;
  const std::size_t begin = at_;
  const double number = this->number();
  if (const auto whole = whole_number<std::int64_t>(text_.substr(begin, at_ - begin))) return *whole;
  if (number != std::trunc(number)) fail("expected an integer");  // also for NaN
  if (number >= 0x1p63) return Limits::max();
  return number < -0x1p63 ? Limits::min() : static_cast<std::int64_t>(number);
}

bool PythonJsonReader::boolean() {
  if (take("true")) return true;
  if (!take("false")) fail("expected true or false");
  return false;
}

bool PythonJsonReader::null() { return take("null"); }

nlohmann::json PythonJsonReader::value() {
  switch (peek()) {
    case '{': {
      nlohmann::json object = nlohmann::json::object();
      begin_object();
      while (const auto key = next_key()) {
        const std::string name(*key);
        object[name] = value();
      }
      return object;
    }
    case '[': {
      nlohmann::json array = nlohmann::json::array();
      begin_array();
      while (next_item()) array.push_back(value());
      return array;
    }
    case '"':
      return string();
    case 't':
    case 'f':
      return boolean();
    case 'n':
      if (null()) return nullptr;
      fail("expected a value");
    default:
      break;
  }
  if (const auto whole = take_whole()) return *whole;
  const std::size_t begin = at_;
  const double number = this->number();
  const std::string_view text = text_.substr(begin, at_ - begin);
  if (const auto whole = whole_number<std::int64_t>(text)) return *whole;
  if (const auto whole = whole_number<std::uint64_t>(text)) return *whole;
  return number;
}

void PythonJsonReader::skip() {
  switch (peek()) {
    case '{':
      begin_object();
      while (next_key()) skip();
      return;
    case '[':
      begin_array();
      while (next_item()) skip();
      return;
    case '"':
      string();
      return;
    default:
      value();
  }
}

void PythonJsonReader::end() {
  peek();
  if (at_ < text_.size()) fail("expected the end of the line");
}

std::string to_python_json(const nlohmann::json& value) {
  std::string text;
  append_json(text, value);
  return text;
}

}  // namespace adaptdl::sched::tune
