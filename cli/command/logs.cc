#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <memory>
#include <thread>

#include "adaptdl/error.h"
#include "command/command.h"
#include "local/run_directory.h"
#include "local/run_logs.h"
#include "local/run_record.h"

namespace adaptdl::cli {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(100);

struct Options {
  std::string run, rank;
  bool follow = false;
  bool notices = false;
};

std::optional<int> parse_rank(const std::string& text) {
  if (text.empty()) return std::nullopt;
  int rank = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || end != text.data() + text.size() || rank < 0)
    throw UsageError(fmt::format("logs: --rank takes a rank, from 0, not '{}'", text));
  return rank;
}

void write(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// Calls `read` until the run has ended, and once after that.
template <typename Read>
void follow_run(const sched::RunEntry& run, bool follow, const Read& read) {
  while (follow && sched::is_alive(run)) {
    read();
    if (std::fflush(stdout) != 0) return;
    std::this_thread::sleep_for(kLookEvery);
  }
  read();
}

void show_notices(const sched::RunEntry& run, bool follow) {
  std::ifstream file(run.directory / "run.log");
  if (!file) {
    throw Error(
        fmt::format("run {} has no log of its launcher, which was not started with --detach and showed its notices",
                    run.status.name));
  }
  follow_run(run, follow, [&file] {
    file.clear();
    for (char c; file.get(c);) std::putchar(c);
  });
}

void logs(const Options& options) {
  const std::optional<int> rank = parse_rank(options.rank);
  const sched::RunEntry run = sched::find_run(sched::runs_directory(), options.run);
  if (options.notices) return show_notices(run, options.follow);
  const std::filesystem::path directory = run.status.logs;
  const auto ranks = sched::logged_ranks(directory);
  // One that comes later is waited for.
  if (rank && !ranks.contains(*rank) && !(options.follow && run.alive)) {
    throw UsageError(fmt::format("run {} has no log of rank {} in {}; there are: {}", run.status.name, *rank,
                                 directory.string(),
                                 ranks.empty() ? "none" : fmt::format("{}", fmt::join(ranks, ", "))));
  }
  sched::RunLogs reader(directory, rank);
  const sched::RunLogs::Sink sink = [&rank](int of, std::string_view line) {
    if (!rank) write(fmt::format("[{}] ", of));
    write(line);
    write("\n");
  };
  follow_run(run, options.follow, [&] { reader.read(sink); });
  reader.finish(sink);
}

}  // namespace

void add_logs(CLI::App& app, int&) {
  auto options = std::make_shared<Options>();
  app.add_option("run", options->run, "the run, by its name or the beginning of it")->required()->type_name("RUN");
  app.add_option("--rank", options->rank, "only the replica of this rank, without its rank before each line")
      ->type_name("N");
  app.add_flag("--follow", options->follow, "go on until the run ends");
  app.add_flag("--notices", options->notices,
               "what the launcher of a detached run had to say, in place of the replicas");
  app.footer("Lines of several ranks are in the order in which they were written, behind their ranks.");
  app.callback([options] { logs(*options); });
}

}  // namespace adaptdl::cli
