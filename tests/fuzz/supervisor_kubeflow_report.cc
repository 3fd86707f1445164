// Reads any bytes as a progress report: the result is a bounded object of finite numbers with printable names.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "adaptdl/error.h"
#include "supervisor/kubeflow_report.h"

namespace {

void require(bool fine) {
  if (!fine) std::abort();
}

bool is_line(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using nlohmann::json;
  const json body = json::parse(data, data + size, nullptr, false);
  if (body.is_discarded()) return 0;
  try {
    const json report = adaptdl::sched::kubeflow_report(body);
    require(report.is_object() && report.size() <= 64 + 4 + 3);
    require(!report.contains("event"));
    for (const auto& [name, value] : report.items()) {
      require(is_line(name) && !name.empty() && name.size() <= 128);
      require(value.is_number() && std::isfinite(value.get<double>()));
    }
    require(report.contains("progress") == report.contains("targetProgress"));
    const double progress = report.value("progress", 0.0);
    require(0 <= progress && progress <= 100);
  } catch (const adaptdl::UsageError& error) {
    require(is_line(error.what()));
  }
  return 0;
}
