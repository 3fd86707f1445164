// An image's configuration as JSON, for OCI and Docker alike: parses a base image's, and writes that of a built image.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "image/build_cache.h"
#include "image/expansion.h"
#include "image/platform.h"

namespace adaptdl::image {

struct HistoryEntry {
  std::int64_t date = 0;
  std::string created_by, author;
  bool empty_layer = false;
};

// The configuration of a base image.
struct ParsedConfig {
  nlohmann::json whole;  // the whole JSON object
  ImageConfig config;    // without triggers
  std::vector<std::string> triggers;
  std::vector<std::string> diff_ids;
  std::int64_t date = 0;  // time of creation, in seconds since 1970; 0 if not given
};
// Throws Error with the fault.
ParsedConfig parse_config(std::string_view bytes);

// Returns the configuration of a built image: `base` (null: an empty image) with the changes by `config` and the steps.
std::string config_json(const nlohmann::json& base, const ImageConfig& config, const Platform& platform,
                        std::int64_t date, const std::vector<HistoryEntry>& history,
                        const std::vector<std::string>& diff_ids);

// Returns an OCI manifest.
std::string manifest_json(const std::string& config, const std::vector<BuiltLayer>& layers);

// Returns the text of a step for the history, as Docker writes it; for an ARG, only its name.
std::string history_text(const Step& step);

// Formats a time as "2026-01-31T12:00:00Z", and parses one: 0 if it is not valid.
std::string time_text(std::int64_t seconds);
std::int64_t parse_time(const std::string& text);

}  // namespace adaptdl::image
