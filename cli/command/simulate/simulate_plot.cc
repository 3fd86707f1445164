#include "command/simulate/simulate_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include "adaptdl/error.h"
#include "simulation/cluster_plot.h"
#include "simulation/cycle_log.h"
#include "terminal/format.h"
#include "terminal/print.h"

namespace adaptdl::cli {
namespace {

struct PlotOptions {
  std::string file, output, title, workload, policy;
};

struct Simulation {
  std::string workload, policy;
  bool operator==(const Simulation&) const = default;
};

std::string describe_simulations(const std::vector<Simulation>& simulations) {
  constexpr std::size_t kMaxNames = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(simulations.size(), kMaxNames); ++i)
    text += fmt::format("{}{} under {}", i == 0 ? "" : ", ", simulations[i].workload, simulations[i].policy);
  return text + (simulations.size() > kMaxNames ? ", ..." : "");
}

// Returns the timeline of the single simulation that the options select.
Timeline read_timeline(const PlotOptions& options) {
  TimelineBuilder builder;
  std::vector<Simulation> all, chosen;
  read_cycle_log(options.file, [&](sched::CycleRecord& record) {
    const Simulation simulation{record.workload, record.policy};
    if (std::ranges::find(all, simulation) == all.end()) all.push_back(simulation);
    if (!options.workload.empty() && options.workload != record.workload) return;
    if (!options.policy.empty() && options.policy != record.policy) return;
    if (std::ranges::find(chosen, simulation) == chosen.end()) chosen.push_back(simulation);
    if (chosen.size() == 1) builder.add(record);
  });
  if (chosen.size() == 1) return builder.finish();
  throw UsageError(fmt::format("simulate plot: '{}' contains {}; choose one with --workload and --policy", options.file,
                               chosen.empty()
                                   ? "no such simulation, only " + describe_simulations(all)
                                   : fmt::format("{} simulations ({})", chosen.size(), describe_simulations(chosen))));
}

void write_whole(const std::filesystem::path& file, const std::string& text) {
  const auto fail = [&file](int error) {
    throw Error(fmt::format("cannot write '{}': {}", file.string(), std::strerror(error)));
  };
  errno = 0;
  std::ofstream out(file, std::ios::trunc);
  out << text << std::flush;
  if (!out) fail(errno);
}

void plot(const PlotOptions& options) {
  std::optional<Timeline> timeline;
  try {
    timeline = read_timeline(options);
  } catch (const Error& error) {
    throw UsageError(error.what());  // the error is in the user's file
  }
  const std::string picture = cluster_plot(*timeline, options.title);
  if (options.output == "-") {
    print_raw(picture);
    if (std::ferror(stdout) != 0) throw Error(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
    return;
  }
  const std::filesystem::path output = options.output.empty()
                                           ? std::filesystem::path(options.file).replace_extension(".svg")
                                           : std::filesystem::path(options.output);
  std::error_code ignored;
  if (std::filesystem::equivalent(output, options.file, ignored))
    throw UsageError(fmt::format("simulate plot: --output '{}' would overwrite the cycle file", output.string()));
  write_whole(output, picture);
  print_out("{}, {}\n", output.string(), format_bytes(picture.size()));
}

}  // namespace

void add_simulate_plot(CLI::App& app) {
  auto options = std::make_shared<PlotOptions>();
  CLI::App* verb =
      app.add_subcommand("plot", "Draw the cluster over time, from the file of `adaptdl simulate --output`");
  verb->add_option("file", options->file, "File with scheduling cycles")->required()->type_name("FILE");
  verb->add_option("-o,--output", options->output,
                   "SVG file to write, or - for standard output (default: the file's name with .svg)")
      ->type_name("FILE");
  verb->add_option("--title", options->title, "Title of the plot (default: the names of the workload and the policy)")
      ->type_name("TITLE");
  verb->add_option("--workload", options->workload, "Workload to draw, if the file contains more than one")
      ->type_name("NAME");
  verb->add_option("--policy", options->policy, "Policy to draw, if the file contains more than one")
      ->type_name("NAME");
  verb->callback([options] { plot(*options); });
}

}  // namespace adaptdl::cli
