// The line at the bottom of a terminal that says how a run is getting on.
#pragma once

#include <chrono>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace adaptdl::cli {

// The finite number under that key of a report; none if it is missing or something else.
std::optional<double> progress_number(const nlohmann::json& progress, const char* key);

// Such a number as people read it: whole, with thousands told apart; small rates with two digits.
std::string count_text(double value);
std::string rate_text(double per_second);
// An epoch that is under way has two digits: "0.53".
std::string epoch_text(double epoch);
// The part of the way that is done, from `progress` and `targetProgress`: "42%". None if one of them is missing.
std::optional<std::string> percent_text(const nlohmann::json& progress);

// What the line says: what the replicas reported last (an object with the keys of adaptdl/progress.h; what is missing
// or no number is left out), the number of replicas and the time since the start, in at most `width` columns: "epoch 3
// step 120/600  loss 0.1234  5,120 samples/s  batch 64  2 replicas  1:07". The percentage is shown where there are no
// steps.
std::string status_text(const nlohmann::json& progress, int replicas, std::chrono::milliseconds elapsed,
                        std::size_t width);

}  // namespace adaptdl::cli
