// Adding lines to a file that must survive a crash.
//
// Threading: a plain function.
#pragma once

#include <filesystem>
#include <string_view>

namespace adaptdl::sched::tune {

// Appends to the file, which is created if it does not exist, and waits until the lines are on the disk. Throws Error.
void append_lines(const std::filesystem::path& file, std::string_view lines);

}  // namespace adaptdl::sched::tune
