// Formats the line that shows the progress of a run at the bottom of a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace adaptdl::cli {

// Returns the value of `key` in a report, or nullopt if the value is missing or not a finite number.
std::optional<double> progress_number(const nlohmann::json& progress, const char* key);

// Format a number for users to read, as an integer with thousands separators. rate_text() formats rates below 10
// with two significant digits instead.
std::string count_text(double value);
std::string rate_text(double per_second);
// An unfinished epoch has two decimals: "0.53".
std::string epoch_text(double epoch);
// Returns the completed part of the work as a percentage, computed from `progress` and `targetProgress`: "42%". Returns
// nullopt if either is missing.
std::optional<std::string> percent_text(const nlohmann::json& progress);

// Formats the replicas' last report, the number of replicas and the time since the start, in at most `width` columns:
//   epoch 3  step 120/600  loss 0.1234  5,120 samples/s  batch 64  2 replicas  1:07
// The report is an object with the keys of adaptdl/progress.h; values that are missing or not numbers are left out. If
// it contains no steps, the percentage is shown.
std::string status_text(const nlohmann::json& progress, int replicas, std::chrono::milliseconds elapsed,
                        std::size_t width);

}  // namespace adaptdl::cli
