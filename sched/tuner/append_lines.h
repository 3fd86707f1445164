#pragma once

#include <filesystem>
#include <string_view>

namespace adaptdl::sched::tune {

// Appends lines to the file, which is created if it does not exist, and waits until they are on disk, so that they
// survive a crash. Throws Error.
void append_lines(const std::filesystem::path& file, std::string_view lines);

}  // namespace adaptdl::sched::tune
