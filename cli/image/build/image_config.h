// Image configurations as JSON, for both OCI and Docker: parses a base image's configuration, and writes a built
// image's.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "image/base/platform.h"
#include "image/dockerfile/expansion.h"
#include "image/layer/build_cache.h"

namespace adaptdl::image {

struct HistoryEntry {
  std::int64_t date = 0;
  std::string created_by, author;
  bool empty_layer = false;
};

// A base image's configuration.
struct ParsedConfig {
  nlohmann::json whole;  // the whole JSON object
  ImageConfig config;    // without triggers
  std::vector<std::string> triggers;
  std::vector<std::string> diff_ids;
  std::int64_t date = 0;  // creation time in seconds since 1970; 0 if not given
};
// Throws an Error that describes the problem.
ParsedConfig parse_config(std::string_view bytes);

// Returns a built image's configuration: `base` (null for an empty image) with the changes from `config` and the steps.
std::string config_json(const nlohmann::json& base, const ImageConfig& config, const Platform& platform,
                        std::int64_t date, const std::vector<HistoryEntry>& history,
                        const std::vector<std::string>& diff_ids);

// Returns an OCI manifest.
std::string manifest_json(const std::string& config, const std::vector<BuiltLayer>& layers);

// time_text() formats a time as "2026-01-31T12:00:00Z"; parse_time() parses text in this format, and returns 0 if the
// text is not valid.
std::string time_text(std::int64_t seconds);
std::int64_t parse_time(const std::string& text);

}  // namespace adaptdl::image
