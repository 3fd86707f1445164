#include <fmt/format.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "command/command.h"
#include "local/run_client.h"
#include "local/run_directory.h"
#include "terminal/runs_table.h"
#include "terminal/terminal.h"

namespace adaptdl::cli {
namespace {

using nlohmann::json;
using sched::RunStatus;

// Runs that ended before are listed with --all only.
constexpr auto kRecent = std::chrono::hours(24);
constexpr timespec kRedrawEvery{.tv_sec = 0, .tv_nsec = 500'000'000};

struct Options {
  bool all = false;
  bool json = false;
  bool watch = false;
};

struct Listing {
  std::vector<RunStatus> runs;
  std::size_t older = 0;  // left out
  RunStatus::Time now;
};

Listing list(const Options& options) {
  Listing listing{.runs = {}, .older = 0, .now = std::chrono::system_clock::now()};
  for (const sched::RunEntry& entry : sched::list_runs(sched::runs_directory())) {
    RunStatus run = sched::status_now(entry);
    if (!options.all && run.ended && listing.now - *run.ended > kRecent) {
      ++listing.older;
    } else {
      listing.runs.push_back(std::move(run));
    }
  }
  return listing;
}

json to_json(const std::vector<RunStatus>& runs) {
  json all = json::array();
  for (const RunStatus& run : runs) all.push_back(sched::to_json(run));
  return all;
}

std::string dump(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace) + '\n';
}

std::string text(const Listing& listing) {
  const std::string older = listing.older == 0 ? "" : fmt::format("; --all shows {} more", listing.older);
  if (listing.runs.empty())
    return listing.older == 0 ? "no runs\n" : fmt::format("no run goes on or ended in the last day{}\n", older);
  return runs_table(listing.runs, listing.now).render(terminal_width(STDOUT_FILENO), use_colour(STDOUT_FILENO));
}

// How to go on with the lost runs, in lines of any length: on a terminal, their rows are cut.
std::string how_to_go_on(const Listing& listing) {
  std::string text;
  if (!terminal_width(STDOUT_FILENO)) return text;
  for (const RunStatus& run : listing.runs) {
    if (run.state == "lost") text += printable(fmt::format("{}: {}", run.name, run.why)) + '\n';
  }
  return text;
}

// The last lines of the text, below its first, if it has more than there is room for.
std::string fit(const std::string& text, std::size_t height) {
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n'));
  if (lines < height || height < 3) return text;
  const std::size_t header = text.find('\n') + 1;
  std::size_t begin = header;
  for (std::size_t i = 0; i < lines - height + 1; ++i) begin = text.find('\n', begin) + 1;
  return text.substr(0, header) + text.substr(begin);
}

// Shows runs until Ctrl-C: on a terminal in one place, elsewhere whenever something changed.
void watch(const Options& options) {
  sigset_t interrupt;
  ::sigemptyset(&interrupt);
  ::sigaddset(&interrupt, SIGINT);
  ::sigprocmask(SIG_BLOCK, &interrupt, nullptr);
  const bool redraw = is_capable_terminal(STDOUT_FILENO) && !options.json;
  std::string shown;
  std::ptrdiff_t lines = 0;
  do {
    const Listing listing = list(options);
    const std::string all = dump(to_json(listing.runs), -1);
    if (redraw) {
      const std::string block = fit(text(listing), terminal_height(STDOUT_FILENO).value_or(24));
      if (lines > 0) fmt::print("\x1b[{}A\r\x1b[J", lines);
      fmt::print("{}", block);
      lines = std::ranges::count(block, '\n');
    } else if (all != shown) {
      fmt::print("{}{}", shown.empty() || options.json ? "" : "\n", options.json ? all : text(listing));
    }
    shown = all;
  } while (std::fflush(stdout) == 0 && ::sigtimedwait(&interrupt, nullptr, &kRedrawEvery) != SIGINT);
}

void ls(const Options& options) {
  if (options.watch) return watch(options);
  const Listing listing = list(options);
  fmt::print("{}", options.json ? dump(to_json(listing.runs), 2) : text(listing) + how_to_go_on(listing));
}

}  // namespace

void add_ls(CLI::App& app, int&) {
  auto options = std::make_shared<Options>();
  app.add_flag("--all", options->all, "also runs that ended more than a day ago");
  app.add_flag("--json", options->json, "print JSON: an array of objects, with --watch one a line");
  app.add_flag(
      "--watch", options->watch,
      "go on until Ctrl-C: redrawn twice a second on a terminal, elsewhere printed again when something changed");
  app.footer(
      "States are starting, waiting (for devices), running, rescaling, stopping, restarting, done, failed, stopped\n"
      "and lost. A run is lost if its launcher was killed; WHY says how to go on.");
  app.callback([options] { ls(*options); });
}

}  // namespace adaptdl::cli
