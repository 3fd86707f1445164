#include <fmt/format.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "adaptdl/error.h"
#include "command/base/cluster_options.h"
#include "command/base/command.h"
#include "command/jobs/cluster_watch.h"
#include "command/jobs/listing.h"
#include "command/jobs/ray_jobs.h"
#include "kube/jobs/job_list.h"
#include "terminal/dump_json.h"
#include "terminal/print.h"
#include "terminal/terminal.h"

namespace adaptdl::cli {
namespace {

// Changes in the cluster are shown immediately; local runs are read less often.
constexpr timespec kLookAtJobsEvery{.tv_sec = 0, .tv_nsec = 100'000'000};
constexpr auto kLookAtRunsEvery = std::chrono::milliseconds(500);

struct LsOptions {
  ClusterOptions cluster;
  std::vector<std::string> names;
  std::string output, selector, ray;
  bool all = false;
  bool all_namespaces = false;
  bool json = false;
  bool watch = false;

  // Runs have no labels, so a selector excludes them.
  bool runs() const { return !cluster.cluster && selector.empty(); }
};

Form form(const LsOptions& options) {
  if (options.json || options.output == "json") return Form::kJson;
  if (options.output.empty()) return Form::kTable;
  if (options.output == "wide") return Form::kWide;
  if (options.output == "yaml") return Form::kYaml;
  if (options.output == "name") return Form::kName;
  throw UsageError(fmt::format("ls: -o must be wide, json, yaml or name, not '{}'", options.output));
}

void check(const LsOptions& options) {
  form(options);
  if (options.cluster.local && (options.all_namespaces || !options.selector.empty()))
    throw UsageError("ls: -A and --selector select cluster jobs and cannot be used with --local");
  if (!options.names.empty() && (options.all_namespaces || !options.selector.empty()))
    throw UsageError("ls: NAME cannot be used with -A or --selector");
  if (options.watch && form(options) == Form::kYaml)
    throw UsageError("ls: --watch and -o yaml cannot be used together");
}

std::optional<kube::Access> access(const LsOptions& options) {
  // If no cluster is configured, options that apply only to a cluster are an error.
  const bool asked = options.cluster.cluster || options.all_namespaces || !options.selector.empty() ||
                     !options.cluster.name_space.empty() || !options.cluster.context.empty();
  if (asked && !options.cluster.local) return require_cluster(options.cluster);
  return cluster_access(options.cluster);
}

std::string name_space(const LsOptions& options, const kube::Access& access) {
  return options.all_namespaces ? "" : access.name_space;
}

void add_jobs(Listing& listing, const LsOptions& options) {
  const auto where = access(options);
  if (!where) return;
  kube::Client client(*where);
  try {
    listing.jobs = kube::list_jobs(
        client, {.name_space = name_space(options, *where), .selector = options.selector, .names = options.names},
        listing.now);
  } catch (const kube::KindNotInstalled&) {
    // A cluster without AdaptDL is an error only if the user requested a cluster.
    if (!options.runs()) throw;
    return;
  }
  listing.context = where->context;
}

// Prints in full how to resume lost runs, because the table truncates its rows on a terminal.
void print_how_to_resume(const Listing& listing) {
  if (!terminal_width(STDOUT_FILENO)) return;
  for (const sched::RunStatus& run : listing.runs) {
    if (run.state == "lost") print_out("{}: {}\n", run.name, run.why);
  }
}

void refuse_missing(const Listing& listing, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const bool found = std::ranges::any_of(listing.runs, [&](const auto& run) { return run.name == name; }) ||
                       std::ranges::any_of(listing.jobs, [&](const auto& view) { return view.job.name == name; });
    if (!found) throw Error(fmt::format("run or job '{}' not found; `adaptdl ls --all` lists all of them", name));
  }
}

void show_once(const LsOptions& options) {
  Listing listing{.runs = {}, .older = 0, .jobs = {}, .context = {}, .now = std::chrono::system_clock::now()};
  std::exception_ptr failed;
  try {
    add_jobs(listing, options);
  } catch (const Error&) {
    failed = std::current_exception();
  }
  if (options.runs()) add_runs(listing, options.all, options.names);
  const Form wanted = form(options);
  // The local runs are useful even if the cluster is unreachable.
  if (!failed || (options.runs() && !(wanted <= Form::kWide && listing.runs.empty()))) {
    print_text(render(listing, wanted, options.all_namespaces));
    if (wanted <= Form::kWide) print_how_to_resume(listing);
  }
  if (failed) std::rethrow_exception(failed);
  refuse_missing(listing, options.names);
}

// Returns the first line of the text, and as many of the last lines as fit into `height`.
std::string fit(const std::string& text, std::size_t height) {
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n'));
  if (lines < height || height < 3) return text;
  const std::size_t header = text.find('\n') + 1;
  std::size_t begin = header;
  for (std::size_t i = 0; i < lines - height + 1; ++i) begin = text.find('\n', begin) + 1;
  return text.substr(0, header) + text.substr(begin);
}

// Shows the current listing of a watch; on a terminal, always in the same place.
class Screen {
 public:
  explicit Screen(const LsOptions& options)
      : options_(options), form_(form(options)), redraw_(is_capable_terminal(STDOUT_FILENO) && form_ != Form::kJson) {}

  bool redraws() const { return redraw_; }

  void show(const Listing& listing) {
    const std::string all = dump_json(to_json(listing), -1) + '\n';
    if (redraw_) {
      const std::string block =
          fit(render(listing, form_, options_.all_namespaces), terminal_height(STDOUT_FILENO).value_or(24));
      if (lines_ > 0) erase_lines(lines_);
      print_text(block);
      lines_ = std::ranges::count(block, '\n');
    } else if (all != shown_) {
      print_text((shown_.empty() || form_ == Form::kJson ? "" : "\n") +
                 (form_ == Form::kJson ? all : render(listing, form_, options_.all_namespaces)));
    }
    shown_ = all;
  }

  // Prints a notice when the cluster becomes unreachable, and another when it is reachable again. `known` states
  // whether the state of the jobs before the outage is known.
  void outage(const std::string& why, bool known) {
    if (why.empty() == outage_.empty()) return;
    print_notice("{}{}", why.empty() ? "the cluster responds again" : why,
                 why.empty() || !known ? "" : "; showing the last known state of the cluster's jobs");
    outage_ = why;
    lines_ = 0;  // the text on the terminal is now above that notice
  }

 private:
  const LsOptions& options_;
  Form form_;
  bool redraw_;
  std::string shown_, outage_;
  std::ptrdiff_t lines_ = 0;
};

bool is_wanted(const kube::JobView& view, const LsOptions& options) {
  return options.names.empty() || std::ranges::find(options.names, view.job.name) != options.names.end();
}

// Shows runs and jobs until Ctrl-C. Redraws the listing in place on a terminal; otherwise, prints it again after each
// change.
void watch(const LsOptions& options) {
  sigset_t interrupt;
  ::sigemptyset(&interrupt);
  ::sigaddset(&interrupt, SIGINT);
  ::sigprocmask(SIG_BLOCK, &interrupt, nullptr);
  std::unique_ptr<kube::Client> client;
  std::unique_ptr<ClusterWatch> cluster;
  if (const auto where = access(options)) {
    client = std::make_unique<kube::Client>(*where);
    cluster = std::make_unique<ClusterWatch>(*client, name_space(options, *where), options.selector);
  }
  Screen screen(options);
  std::size_t version = 0;
  auto looked = std::chrono::steady_clock::time_point();
  do {
    const auto now = std::chrono::steady_clock::now();
    if (cluster && !cluster->ready()) {
      screen.outage(cluster->outage(), cluster->ready());
      continue;
    }
    const bool changed = cluster && cluster->version() != version;
    if (!changed && now - looked < kLookAtRunsEvery) continue;
    looked = now;
    Listing listing{.runs = {}, .older = 0, .jobs = {}, .context = {}, .now = std::chrono::system_clock::now()};
    if (options.runs()) add_runs(listing, options.all, options.names);
    if (cluster) {
      version = cluster->version();
      screen.outage(cluster->outage(), cluster->ready());
      listing.context = client->access().context;
      listing.jobs = cluster->views(listing.now);
      std::erase_if(listing.jobs, [&](const auto& view) { return !is_wanted(view, options); });
    }
    screen.show(listing);
  } while (std::fflush(stdout) == 0 && ::sigtimedwait(&interrupt, nullptr, &kLookAtJobsEvery) != SIGINT);
}

}  // namespace

void add_ls(CLI::App& app, int&) {
  auto options = std::make_shared<LsOptions>();
  app.add_option("name", options->names, "Name of a run or job to list (default: all)")->type_name("JOB");
  add_context_options(app, options->cluster);
  app.add_flag("-A,--all-namespaces", options->all_namespaces, "List jobs in all namespaces, as NAMESPACE/NAME");
  app.add_option("-l,--selector", options->selector, "List only jobs with these labels, in kubectl's syntax")
      ->type_name("LABELS");
  add_place_options(app, options->cluster);
  app.add_flag("--all", options->all, "Also list runs that ended more than a day ago");
  app.add_option("-o,--output", options->output,
                 "Output format: a table with more columns, JSON, YAML, or only the names")
      ->type_name("wide|json|yaml|name");
  app.add_flag("--json", options->json, "Print JSON: an array of objects; with --watch, one array per line");
  app.add_flag("--watch", options->watch,
               "Keep running until Ctrl-C; redraw in place on a terminal, or print the list again after each change");
  add_ray_option(app, options->ray,
                 {"--namespace", "--context", "--all-namespaces", "--selector", "--local", "--cluster", "--all",
                  "--output", "--watch"});
  app.footer(
      "If a kubeconfig selects a cluster, its jobs are also listed. WHY shows what a job or run is waiting for, or\n"
      "why it failed. The states of runs are starting, waiting (for devices), running, rescaling, stopping,\n"
      "restarting, done, failed, stopped and lost. A run is lost if its launcher was killed; WHY then shows how to\n"
      "resume the run.");
  app.callback([options] {
    check(*options);
    if (!options->ray.empty()) return list_ray_jobs(options->ray, options->names, options->json);
    options->watch ? watch(*options) : show_once(*options);
  });
}

}  // namespace adaptdl::cli
