#include "operator/nodes/device_selector.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "adaptdl/error.h"
#include "kube/api/json_fields.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

class SelectorReader {
 public:
  explicit SelectorReader(std::string_view text) : text_(text) {}

  // Skips white space, and then `token` if it comes next. Returns whether `token` was skipped.
  bool take(std::string_view token) {
    text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
    if (!text_.starts_with(token)) return false;
    const bool is_name = is_name_char(token.back());
    if (is_name && text_.size() > token.size() && is_name_char(text_[token.size()])) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail(fmt::format("expected '{}'", token));
  }
  bool at_end() {
    text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
    return text_.empty();
  }
  std::string name() {
    at_end();
    std::size_t length = 0;
    while (length < text_.size() && is_name_char(text_[length])) ++length;
    if (length == 0) fail("expected a name");
    return take_prefix(length);
  }
  std::string string() {
    if (at_end() || (text_[0] != '\'' && text_[0] != '"')) fail("expected a string");
    const char quote = text_[0];
    text_.remove_prefix(1);
    const std::size_t end = text_.find(quote);
    if (end == std::string_view::npos) fail("unterminated string");
    std::string value = take_prefix(end);
    if (value.find_first_of("\\\r\n") != std::string::npos) fail("escape sequences are not supported");
    text_.remove_prefix(1);
    return value;
  }
  json value() {
    if (take("true")) return true;
    if (take("false")) return false;
    if (at_end() || text_[0] == '\'' || text_[0] == '"') return string();
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), number);
    if (error != std::errc()) fail("expected a string, an integer, true or false");
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return number;
  }
  DeviceSelector::Comparison comparison() {
    DeviceSelector::Comparison read;
    const bool negated = take("!");
    expect("device");
    expect(".");
    const bool is_driver = !negated && take("driver");
    if (!is_driver) {
      expect("attributes");
      expect("[");
      read.domain = string();
      expect("]");
      expect(".");
      read.attribute = name();
    }
    if (negated) {
      read.value = false;
    } else if (take("==")) {
      read.value = value();
    } else if (take("!=")) {
      read.equal = false;
      read.value = value();
    } else if (is_driver) {
      fail("expected '==' or '!='");
    } else {
      read.value = true;
    }
    return read;
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(text_.empty() ? why + " at the end" : fmt::format("{} at '{}'", why, text_.substr(0, 40)));
  }

 private:
  std::string take_prefix(std::size_t length) {
    std::string taken(text_.substr(0, length));
    text_.remove_prefix(length);
    return taken;
  }
  std::string_view text_;
};

// Returns the value of an attribute that is stored as {"string": …}, {"int": …} or {"bool": …}. Returns null if the
// device lacks the attribute or if the attribute is a {"version": …}. Names without a domain belong to the driver's
// domain.
const json& attribute_of(const json& device, const std::string& driver, const std::string& domain,
                         const std::string& name) {
  static const json none;
  const json* attribute = &kube::field(device, {"attributes", (domain + '/' + name).c_str()});
  if (attribute->is_null() && domain == driver) attribute = &kube::field(device, {"attributes", name.c_str()});
  for (const char* type : {"string", "int", "bool"}) {
    if (const json& value = kube::field(*attribute, {type}); !value.is_null()) return value;
  }
  return none;
}

}  // namespace

DeviceSelector::DeviceSelector(std::string_view expression) {
  SelectorReader in(expression);
  int parentheses = 0;
  do {
    while (in.take("(")) ++parentheses;
    comparisons_.push_back(in.comparison());
    for (; parentheses > 0 && in.take(")"); --parentheses) {
    }
  } while (in.take("&&"));
  if (parentheses > 0 || !in.at_end()) in.fail(parentheses > 0 ? "expected ')'" : "expected '&&'");
}

bool DeviceSelector::matches(const std::string& driver, const json& device) const {
  for (const auto& [domain, attribute, value, equal] : comparisons_) {
    const json actual = attribute.empty() ? json(driver) : attribute_of(device, driver, domain, attribute);
    if (actual.is_null() || (actual == value) != equal) return false;
  }
  return true;
}

}  // namespace adaptdl::sched
