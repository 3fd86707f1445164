// What is not measured of an application but chosen: application.json beside its measurements. docs/formats.md has it.
#pragma once

#include <filesystem>

#include "simulator/application.h"

namespace adaptdl::sched {

// Puts the settings over what the measurements say. Leaves `data` as it is if there is no such file. Throws Error,
// "FILE:LINE:COLUMN: what is wrong; the way out", on a setting that is unknown, of the wrong type, or outside of what
// was measured.
void apply_settings(const std::filesystem::path& file, ApplicationData& data);

}  // namespace adaptdl::sched
