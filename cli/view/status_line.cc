#include "view/status_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/counted.h"
#include "terminal/format.h"
#include "terminal/terminal.h"

namespace adaptdl::cli {
namespace {

constexpr double kMaxRemaining = 1e12;  // seconds

}  // namespace

std::optional<double> progress_number(const nlohmann::json& progress, const char* key) {
  const auto found = progress.find(key);
  if (found == progress.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::string count_text(double value) {
  constexpr double kExact = 1e15;  // below this, a double represents every integer
  return std::abs(value) < kExact ? format_count(std::llround(value)) : fmt::format("{:.3g}", value);
}

std::string epoch_text(double epoch) {
  return std::trunc(epoch) == epoch ? count_text(epoch) : fmt::format("{:.2f}", epoch);
}

std::optional<std::string> percent_text(const nlohmann::json& progress) {
  const auto done = progress_number(progress, "progress"), target = progress_number(progress, "targetProgress");
  if (!done || !target || *target <= 0) return std::nullopt;
  // Rounds down, so that 100% means that the work is complete. Multiplies first, so that 29 of 100 is shown as 29%.
  return fmt::format("{:.0f}%", std::floor(std::clamp(*done * 100 / *target, 0.0, 100.0)));
}

std::string rate_text(double per_second) {
  return per_second < 10 ? fmt::format("{:.2g}", per_second) : count_text(per_second);
}

std::string status_text(const nlohmann::json& progress, int replicas, std::chrono::milliseconds elapsed,
                        std::size_t width) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : "  ") + part; };
  if (const auto epoch = progress_number(progress, "epoch")) add("epoch " + epoch_text(*epoch));
  if (const auto step = progress_number(progress, "step")) {
    const auto steps = progress_number(progress, "steps");
    add("step " + count_text(*step) + (steps ? '/' + count_text(*steps) : ""));
  } else if (const auto percent = percent_text(progress)) {
    add(*percent);
  }
  if (const auto loss = progress_number(progress, "loss")) add(fmt::format("loss {:.4g}", *loss));
  if (const auto rate = progress_number(progress, "samples_per_s")) add(rate_text(*rate) + " samples/s");
  if (const auto batch = progress_number(progress, "batch_size")) add("batch " + count_text(*batch));
  add(counted(replicas, "replica"));
  add(format_clock(elapsed));
  if (const auto left = progress_number(progress, "remaining_s"); left && *left >= 0 && *left <= kMaxRemaining)
    add(format_clock(std::chrono::milliseconds(std::llround(*left * 1000))) + " left");
  return truncated(text, width);
}

}  // namespace adaptdl::cli
