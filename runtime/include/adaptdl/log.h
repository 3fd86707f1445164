// A replica's log messages. Each is one line on standard error: "adaptdl: TEXT" or "adaptdl: warning: TEXT".
//
// Threading: both functions may be called from any thread; a line is written with one write(2), so lines from several
// threads never mix.
#pragma once

#include <string_view>

namespace adaptdl::log {

// Writes an informational line, unless the environment variable ADAPTDL_LOG is "warning".
void info(std::string_view text);

// Writes a warning about something that the user should know, although the run continues.
void warn(std::string_view text);

}  // namespace adaptdl::log
