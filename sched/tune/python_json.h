// JSON as Python's json module reads and writes it: with the numbers NaN, Infinity and -Infinity.
//
// The reader does not build a document: it walks over a text, and its caller asks for what comes next.
//
// Errors: Error with the column, without the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::sched::tune {

class PythonJsonReader {
 public:
  // The text must outlive the reader.
  explicit PythonJsonReader(std::string_view text) : text_(text) {}

  // Enters an object or array, whose members follow: next_key() and then the value, until it returns none, and
  // next_item() and then the value, until it returns false.
  void begin_object();
  std::optional<std::string_view> next_key();  // valid until the next call of any function
  void begin_array();
  bool next_item();

  std::string_view string();  // valid until the next call of any function
  double number();
  // The number as a whole one, such as 3 or 3.0; those beyond the limits of the type become the limits.
  std::int64_t integer();
  bool boolean();
  bool null();  // whether null comes next, which is then read
  nlohmann::json value();
  void skip();

  // Throws Error if anything but white space follows.
  void end();
  [[noreturn]] void fail(std::string_view what) const;

 private:
  char peek();
  void expect(char c);
  bool take(std::string_view word);
  std::string_view number_text();
  std::optional<std::int64_t> take_whole();
  void append_escape();
  unsigned hex4();
  void enter();

  std::string_view text_;
  std::size_t at_ = 0;
  bool first_ = false;  // whether the next member is the first of its object or array
  int depth_ = 0;
  std::string unescaped_;  // the last string that has escapes
};

// The text, in ASCII and without spaces.
std::string to_python_json(const nlohmann::json& value);

}  // namespace adaptdl::sched::tune
