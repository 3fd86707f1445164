// Compares messages with those in a golden file.
//
// Most directories of unit tests have a file messages.golden. It contains the messages that the tests in the directory
// cause, below the expressions that return them. After a change of a message in the source, `tests/update_golden`
// writes these files again, and `git diff` shows the old and the new text.
#pragma once

#include <doctest/doctest.h>

#include <string>

namespace testing {

// Returns the text with a placeholder for the name of each temporary file or directory, which differs from run to run.
std::string without_temporary_names(std::string text);

// Returns the text that the golden file contains for `expression` in the running test case. An expression that is
// evaluated several times has a text for each time. With ADAPTDL_UPDATE_GOLDEN=1, records `actual` and returns it.
// Throws std::invalid_argument if `actual` is not one line of text.
std::string golden(const std::string& expression, const std::string& actual);

// Must be called at the end of a test program. Returns whether each test case that compared any text has compared all
// of its texts. With ADAPTDL_UPDATE_GOLDEN=1, writes the recorded texts to the golden files.
bool finish_golden_files();

}  // namespace testing

// Checks that the golden file contains the value of the expression: a message of one line.
#define CHECK_GOLDEN(...)                                                                           \
  do {                                                                                              \
    INFO(#__VA_ARGS__);                                                                             \
    const std::string golden_actual = ::testing::without_temporary_names(std::string(__VA_ARGS__)); \
    CHECK(golden_actual == ::testing::golden(#__VA_ARGS__, golden_actual));                         \
  } while (false)
