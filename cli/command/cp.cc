#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <memory>

#include "adaptdl/error.h"
#include "command/cluster_options.h"
#include "command/command.h"
#include "command/stop_signals.h"
#include "kube/copy/copy.h"
#include "kube/copy/place.h"
#include "kube/copy/pod_shell.h"
#include "terminal/copy_line.h"
#include "terminal/print.h"

namespace adaptdl::cli {
namespace {

struct CpOptions {
  ClusterOptions cluster;
  std::string source, target, rank, container, image;
};

std::optional<int> parse_rank(const std::string& text) {
  if (text.empty()) return std::nullopt;
  int rank = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || end != text.data() + text.size() || rank < 0)
    throw UsageError(fmt::format("cp: --rank takes a rank, from 0, not '{}'", text));
  return rank;
}

void copy(const CpOptions& options, int& exit_code) {
  const kube::Place source = kube::parse_place(options.source), target = kube::parse_place(options.target);
  if (source.job.empty() == target.job.empty())
    throw UsageError("cp: one of both is JOB:PATH, and the other a path of this machine, or - for a stream");
  const kube::PodChoice choice{parse_rank(options.rank), options.container, options.image};
  if (!choice.image.empty() && (choice.rank || !choice.container.empty()))
    throw UsageError("cp: --image is for a pod of its own, which --rank and --container do not choose");
  StopSignals signals(&kube::Cleanup::run_all);
  CopyLine line(kube::base_name(source.stream() ? target.path : source.path));
  kube::CopyEvents events;
  events.stop = signals.token();
  events.progress = [&line](std::uint64_t done, std::optional<std::uint64_t> total) { line.show(done, total); };
  events.notice = [&line](const std::string& text) {
    line.clear();
    print_notice("{}", text);
  };
  events.trouble = events.notice;
  try {
    kube::Client client(require_cluster(options.cluster));
    const JobName name = parse_job_name(source.job.empty() ? target.job : source.job, client.access());
    kube::PodShell shell(client, get_job(client, name), choice, events.stop, events.notice);
    if (source.stream()) {
      kube::upload_stream(shell, STDIN_FILENO, target.path, events);
    } else if (target.stream()) {
      kube::download_stream(shell, source.path, STDOUT_FILENO, events);
    } else if (source.job.empty()) {
      kube::upload(shell, source.path, target.path, events);
    } else {
      kube::download(shell, source.path, target.path, events);
    }
  } catch (const kube::Interrupted&) {
    exit_code = signals.exit_code();
  }
}

}  // namespace

void add_cp(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<CpOptions>();
  app.add_option("source", options->source, "a file or directory: JOB:PATH in a job, PATH here; - for standard input")
      ->required()
      ->type_name("FILE");
  app.add_option("target", options->target, "where it goes: PATH here, JOB:PATH in a job; - for standard output")
      ->required()
      ->type_name("FILE");
  add_context_options(app, options->cluster);
  app.add_option("--rank", options->rank, "by the replica of this rank; by default the lowest that runs")
      ->type_name("N");
  app.add_option("--container", options->container, "by this container of the replica; by default the first")
      ->type_name("NAME");
  app.add_option("--image", options->image,
                 "by a pod of its own with this image on the job's volume, even while the job runs")
      ->type_name("IMAGE");
  app.footer(
      "As with cp, a target that is a directory gets the source under its own name, and SOURCE/. is what is in\n"
      "SOURCE. Modes, times, links and hard links are kept. - is a file's bytes, or a directory as a tar archive.\n"
      "While no replica runs, a pod of its own copies from the job's volume, for as long as it takes. A path of this\n"
      "machine with a colon is told by ./ before it.");
  app.callback([options, &exit_code] { copy(*options, exit_code); });
}

}  // namespace adaptdl::cli
