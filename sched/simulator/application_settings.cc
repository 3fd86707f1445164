#include "simulator/application_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "adaptdl/error.h"
#include "simulator/csv.h"

namespace adaptdl::sched {
namespace {

constexpr std::array<std::string_view, 5> kSettings = {"epochs", "min_local_bsz", "max_local_bsz", "fixed_batch_size",
                                                       "max_replicas"};

class Settings {
 public:
  explicit Settings(const std::filesystem::path& file) : file_(file), text_(read_text(file)) {
    try {
      json_ = nlohmann::json::parse(text_);
    } catch (const nlohmann::json::parse_error& error) {
      fail(error.byte > 0 ? error.byte - 1 : 0, "invalid JSON; see docs/formats.md for an example");
    }
    if (!json_.is_object()) fail(0, "not a JSON object; expected one such as {\"epochs\": 10}");
    for (const auto& [key, value] : json_.items()) {
      if (std::ranges::find(kSettings, key) == kSettings.end()) {
        fail(key, fmt::format("unknown setting '{}': expected one of {}", key, fmt::join(kSettings, ", ")));
      }
    }
  }

  bool has(std::string_view key) const { return json_.contains(key); }

  // Returns an integer from `min_value` to `max_value`. `bounds` describes the range in the error.
  std::size_t get(std::string_view key, std::size_t min_value, std::size_t max_value, std::string_view bounds) const {
    const nlohmann::json& value = json_.at(std::string(key));
    if (!value.is_number_unsigned() || value.get<std::size_t>() < min_value || value.get<std::size_t>() > max_value) {
      fail(key, fmt::format("{} must be an integer from {} to {} ({}), not {}", key, min_value, max_value, bounds,
                            value.dump()));
    }
    return value.get<std::size_t>();
  }

 private:
  [[noreturn]] void fail(std::string_view key, std::string_view what) const {
    const std::size_t at = text_.find(fmt::format("\"{}\"", key));
    fail(at == std::string::npos ? 0 : at, what);
  }
  [[noreturn]] void fail(std::size_t byte, std::string_view what) const {
    const auto before = std::string_view(text_).substr(0, byte);
    const auto line = 1 + std::ranges::count(before, '\n');
    const std::size_t column = before.size() - (before.rfind('\n') + 1) + 1;
    throw Error(fmt::format("{}:{}:{}: {}", file_.string(), line, column, what));
  }

  std::filesystem::path file_;
  std::string text_;
  nlohmann::json json_;
};

}  // namespace

void apply_settings(const std::filesystem::path& file, ApplicationData& data) {
  if (!std::filesystem::exists(file)) return;
  const Settings settings(file);
  if (settings.has("epochs")) {
    const auto max_epochs = static_cast<std::size_t>(data.epochs);
    data.epochs =
        static_cast<int>(settings.get("epochs", 1, max_epochs, "the number of rows in the shortest validation file"));
  }
  if (settings.has("min_local_bsz")) {
    data.min_local_bsz = settings.get("min_local_bsz", data.min_local_bsz, data.max_local_bsz,
                                      "the range of local_bsz in placements.csv");
  }
  if (settings.has("max_local_bsz")) {
    data.max_local_bsz =
        settings.get("max_local_bsz", data.min_local_bsz, data.max_local_bsz,
                     "min_local_bsz and the largest local_bsz in placements.csv");
  }
  if (settings.has("fixed_batch_size")) {
    data.fixed_batch_size =
        settings.get("fixed_batch_size", std::max(data.validation.begin()->first, data.min_local_bsz),
                     data.validation.rbegin()->first,
                     "the range of validated batch sizes that are at least min_local_bsz");
  }
  if (settings.has("max_replicas")) {
    data.max_replicas = static_cast<int>(settings.get("max_replicas", 1, 1'000'000, "the simulator's limit"));
  }
}

}  // namespace adaptdl::sched
