// JSON as Python's json module reads and writes it: with the numbers NaN, Infinity and -Infinity.
//
// The reader does not build a document: it moves through a text, and the caller reads one value after another.
//
// Errors: Error, whose message contains the column but not the file.
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

  // Enter an object or array. To read its members, call next_key() and read a value until next_key() returns nullopt,
  // or call next_item() and read a value until next_item() returns false.
  void begin_object();
  std::optional<std::string_view> next_key();  // valid until the next call to any function
  void begin_array();
  bool next_item();

  std::string_view string();  // valid until the next call to any function
  double number();
  // Reads an integer, such as 3 or 3.0, and clamps it to the range of the type.
  std::int64_t integer();
  bool boolean();
  bool null();  // reads null if it comes next, and returns whether it did
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
  std::string unescaped_;  // the last string that had escapes, unescaped
};

// Returns the text of the value, in ASCII and without spaces.
std::string to_python_json(const nlohmann::json& value);

}  // namespace adaptdl::sched::tune
