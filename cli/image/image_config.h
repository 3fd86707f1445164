// An image's configuration as JSON, of OCI and Docker alike: read from a base image, and written for what is built.
//
// Threading: plain functions and values.
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

// What a base image says of itself.
struct ParsedConfig {
  nlohmann::json whole;  // all of it
  ImageConfig config;    // without triggers
  std::vector<std::string> triggers;
  std::vector<std::string> diff_ids;
  std::int64_t date = 0;  // when it was created; 0 if it does not say
};
// Throws Error that says what is wrong with it.
ParsedConfig parse_config(std::string_view bytes);

// What was built: what the base says (null: an empty image) as `config` and the steps changed it.
std::string config_json(const nlohmann::json& base, const ImageConfig& config, const Platform& platform,
                        std::int64_t date, const std::vector<HistoryEntry>& history,
                        const std::vector<std::string>& diff_ids);

// An OCI manifest.
std::string manifest_json(const std::string& config, const std::vector<BuiltLayer>& layers);

// How a step is told in the history, as Docker tells it; without what only --build-arg knows but for the ARGs' names.
std::string history_text(const Step& step);

// "2026-01-31T12:00:00Z", and back: 0 for what is no such time.
std::string time_text(std::int64_t seconds);
std::int64_t parse_time(const std::string& text);

}  // namespace adaptdl::image
