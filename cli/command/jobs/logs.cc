#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdio>
#include <deque>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <thread>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "base/printable.h"
#include "command/base/cluster_options.h"
#include "command/base/command.h"
#include "command/jobs/ray_jobs.h"
#include "kube/jobs/job_logs.h"
#include "local/record/run_directory.h"
#include "local/record/run_logs.h"
#include "local/record/run_record.h"
#include "terminal/print.h"

namespace adaptdl::cli {
namespace {

constexpr auto kLookIntoLogsEvery = std::chrono::milliseconds(100);

struct LogsOptions {
  ClusterOptions cluster;
  std::string run, rank, tail, since, ray;
  bool follow = false;
  bool previous = false;
  bool notices = false;
};

std::optional<int> parse_natural(const std::string& text, const char* what) {
  if (text.empty()) return std::nullopt;
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    throw UsageError(fmt::format("logs: {} must be an integer of at least 0, not '{}'", what, text));
  return number;
}

// With `follow`, calls `read` repeatedly until the run has ended. Always calls `read` again at the end.
template <typename Read>
void follow_run(const sched::RunEntry& run, bool follow, const Read& read) {
  while (follow && sched::is_alive(run)) {
    read();
    if (std::fflush(stdout) != 0) return;
    std::this_thread::sleep_for(kLookIntoLogsEvery);
  }
  read();
}

void show_notices(const sched::RunEntry& run, bool follow) {
  std::ifstream file(run.directory / "run.log");
  if (!file) {
    throw Error(
        fmt::format("run '{}' has no launcher log: it was started without --detach and printed its notices directly",
                    run.status.name));
  }
  follow_run(run, follow, [&file] {
    file.clear();
    print_raw(std::string(std::istreambuf_iterator<char>(file), {}));
  });
}

// Keeps the last lines of each rank, and passes them on in the order in which they were added.
class Tail {
 public:
  explicit Tail(std::size_t count) : count_(count) {}
  void add(int rank, std::string_view line) {
    if (count_ == 0) return;
    auto& kept = kept_[rank];
    if (kept.size() == count_) {
      lines_.erase(kept.front());
      kept.pop_front();
    }
    kept.push_back(next_);
    lines_.emplace(next_++, std::pair(rank, std::string(line)));
  }
  void give(const sched::RunLogs::Sink& sink) {
    for (const auto& [number, line] : lines_) sink(line.first, line.second);
    lines_.clear();
  }

 private:
  std::size_t count_, next_ = 0;
  std::map<int, std::deque<std::size_t>> kept_;
  std::map<std::size_t, std::pair<int, std::string>> lines_;
};

void show_run(const sched::RunEntry& run, const LogsOptions& options, std::optional<int> rank,
              std::optional<int> tail) {
  if (!options.since.empty() || options.previous) {
    throw UsageError(
        fmt::format("logs: {} works only with cluster jobs; the logs of run '{}' have no timestamps and include all "
                    "restarts",
                    options.previous ? "--previous" : "--since", run.status.name));
  }
  if (options.notices) return show_notices(run, options.follow);
  const std::filesystem::path directory = run.status.logs;
  const auto ranks = sched::logged_ranks(directory);
  // With --follow, the replica may start later.
  if (rank && !ranks.contains(*rank) && !(options.follow && run.alive)) {
    throw UsageError(fmt::format("run '{}' has no log of rank {} in '{}'; available ranks: {}", run.status.name, *rank,
                                 directory.string(),
                                 ranks.empty() ? "none" : fmt::format("{}", fmt::join(ranks, ", "))));
  }
  sched::RunLogs reader(directory, rank);
  const sched::RunLogs::Sink sink = [&rank](int of, std::string_view line) {
    if (!rank) print_raw(fmt::format("[{}] ", of));
    print_raw(line);
    print_raw("\n");
  };
  if (tail) {
    Tail last(static_cast<std::size_t>(*tail));
    const sched::RunLogs::Sink keep = [&last](int of, std::string_view line) { last.add(of, line); };
    reader.read(keep);
    if (!options.follow || !sched::is_alive(run)) reader.finish(keep);
    last.give(sink);
  }
  follow_run(run, options.follow, [&] { reader.read(sink); });
  reader.finish(sink);
}

void show_job(const Target& target, const LogsOptions& options, std::optional<int> rank, std::optional<int> tail) {
  if (options.notices)
    throw UsageError(
        fmt::format("logs: --notices works only with local runs, but '{}' is a cluster job", target.name.name));
  if (options.previous && options.follow)
    throw UsageError("logs: --previous and --follow cannot be used together: previous containers have ended");
  kube::JobLogsQuery query{.name_space = target.name.name_space,
                           .job = target.name.name,
                           .rank = rank,
                           .since = {},
                           .tail = tail,
                           .previous = options.previous,
                           .follow = options.follow};
  if (!options.since.empty())
    query.since = std::chrono::ceil<std::chrono::seconds>(env::parse_duration(options.since, "logs: --since"));
  const auto show_line = [&rank, text = std::string()](const kube::Replica& replica, kube::Time,
                                                       std::string_view line) mutable {
    text.clear();
    if (!rank) text = fmt::format("[{}] ", replica.rank < 0 ? printable(replica.name) : std::to_string(replica.rank));
    text += line;
    text += '\n';
    print_raw(text);
    return std::ferror(stdout) == 0;
  };
  const kube::JobLogsSinks sinks{.line = show_line,
                                 .flush = [] { return std::fflush(stdout) == 0; },
                                 .notice = [](const std::string& text) { print_notice("{}", text); }};
  kube::read_job_logs(*target.client, query, {}, sinks);
}

void logs(const LogsOptions& options) {
  const auto rank = parse_natural(options.rank, "--rank");
  const auto tail = parse_natural(options.tail, "--tail");
  if (!options.ray.empty() && tail && options.follow)
    throw UsageError("logs: with --ray, --tail and --follow cannot be used together");
  if (!options.ray.empty())
    return show_ray_logs(options.ray, {.job = options.run, .rank = rank, .tail = tail, .follow = options.follow});
  const Target target = find_target(options.cluster, options.run);
  target.run ? show_run(*target.run, options, rank, tail) : show_job(target, options, rank, tail);
}

}  // namespace

void add_logs(CLI::App& app, int&) {
  auto options = std::make_shared<LogsOptions>();
  app.add_option("job", options->run, "Name of a local run (a unique prefix is enough) or of a cluster job")
      ->required()
      ->type_name("JOB");
  app.add_option("--rank", options->rank,
                 "Show only the output of the replica with this rank, without the rank before each line")
      ->type_name("N");
  app.add_flag("--follow", options->follow,
               "Continue to show output until the run or job ends, across resizes and restarts");
  app.add_option("--tail", options->tail,
                 "Number of lines to show at the end of each replica's output or, with --ray, of the job's output "
                 "(default: all)")
      ->type_name("LINES");
  app.add_option("--since", options->since, "For jobs: show only lines newer than this, such as 90s or 2h")
      ->type_name("DURATION");
  app.add_flag("--previous", options->previous,
               "For jobs: show the output of the containers before their last restart in the same pod");
  app.add_flag("--notices", options->notices,
               "For detached runs: show the launcher's notices instead of the replicas' output");
  add_context_options(app, options->cluster);
  add_place_options(app, options->cluster);
  add_ray_option(app, options->ray,
                 {"--namespace", "--context", "--local", "--cluster", "--since", "--previous", "--notices"});
  app.footer("Lines from several ranks are shown in the order in which they were written, each preceded by its rank.");
  app.callback([options] { logs(*options); });
}

}  // namespace adaptdl::cli
