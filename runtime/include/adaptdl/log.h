// Log lines of a replica: one line each on standard error, "adaptdl: TEXT" or "adaptdl: warning: TEXT".
//
// Threading: callable from any thread; a line is written with one write(2), so lines of several threads never mix.
#pragma once

#include <string_view>

namespace adaptdl::log {

// Writes an informational line, unless the environment says ADAPTDL_LOG=warning.
void info(std::string_view text);

// Writes a warning: something the user should know of, although the run goes on.
void warn(std::string_view text);

}  // namespace adaptdl::log
