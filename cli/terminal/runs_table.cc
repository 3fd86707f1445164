#include "terminal/runs_table.h"

#include <fmt/format.h>

#include "terminal/format.h"
#include "terminal/status_line.h"

namespace adaptdl::cli {
namespace {

std::string count(const nlohmann::json& progress, const char* key) {
  const auto value = progress_number(progress, key);
  return value ? count_text(*value) : "-";
}

std::string epoch_cell(const nlohmann::json& progress) {
  const auto value = progress_number(progress, "epoch");
  return value ? epoch_text(*value) : "-";
}

std::string replicas(const sched::RunStatus& run) {
  if (sched::has_ended(run)) return fmt::format("-/{}", run.wanted);
  return fmt::format("{}/{}", run.replicas, run.wanted);
}

}  // namespace

Table runs_table(std::span<const sched::RunStatus> runs, sched::RunStatus::Time now) {
  using Align = Table::Align;
  Table table({{"NAME"},
               {"STATE"},
               {"REPLICAS", Align::kRight},
               {"EPOCH", Align::kRight},
               {"LOSS", Align::kRight},
               {"BATCH", Align::kRight},
               {"SAMPLES/S", Align::kRight},
               {"GOODPUT", Align::kRight},
               {"RESTARTS", Align::kRight},
               {"TIME", Align::kRight},
               {"WHY"}});
  for (const sched::RunStatus& run : runs) {
    const auto loss = progress_number(run.progress, "loss");
    const auto rate = progress_number(run.progress, "samples_per_s");
    const auto goodput = progress_number(run.progress, "goodput");
    const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(run.ended.value_or(now) - run.started);
    table.add_row({run.name, run.state, replicas(run), epoch_cell(run.progress),
                   loss ? fmt::format("{:.4g}", *loss) : "-", count(run.progress, "batch_size"),
                   rate ? rate_text(*rate) : "-", goodput ? rate_text(*goodput) : "-", fmt::format("{}", run.restarts),
                   format_clock(time), run.why});
  }
  return table;
}

}  // namespace adaptdl::cli
