// Helpers for the messages of expected errors.
#pragma once

#include <functional>
#include <string>

#include "adaptdl/error.h"

namespace testing {

// Returns the message of the E that the action throws, or "" if it throws nothing. Other exceptions fail the test.
template <class E = adaptdl::Error>
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

inline bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace testing
