// An application's settings: the application.json next to its measurements, which docs/formats.md describes.
#pragma once

#include <filesystem>

#include "simulator/application.h"

namespace adaptdl::sched {

// Overrides the values derived from the measurements with the settings. Leaves `data` unchanged if `file` does not
// exist. Throws Error with the message "FILE:LINE:COLUMN: what is wrong; what to do" if a setting is unknown, has the
// wrong type, or is outside the measured range.
void apply_settings(const std::filesystem::path& file, ApplicationData& data);

}  // namespace adaptdl::sched
