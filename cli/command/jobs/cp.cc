#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <memory>
#include <optional>

#include "adaptdl/error.h"
#include "command/base/cluster_options.h"
#include "command/base/command.h"
#include "command/base/stop_signals.h"
#include "command/jobs/ray_jobs.h"
#include "http/http.h"
#include "kube/copy/copy.h"
#include "kube/copy/place.h"
#include "kube/copy/pod_shell.h"
#include "terminal/print.h"
#include "view/copy_line.h"

namespace adaptdl::cli {
namespace {

struct CpOptions {
  ClusterOptions cluster;
  std::string source, target, rank, container, image, ray;
};

std::optional<int> parse_rank(const std::string& text) {
  if (text.empty()) return std::nullopt;
  int rank = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || end != text.data() + text.size() || rank < 0)
    throw UsageError(fmt::format("cp: --rank must be an integer of at least 0, not '{}'", text));
  return rank;
}

void transfer(kube::Shell& shell, const kube::Place& source, const kube::Place& target,
              const kube::CopyEvents& events) {
  if (source.stream()) {
    kube::upload_stream(shell, {STDIN_FILENO, "standard input"}, target.path, events);
  } else if (target.stream()) {
    kube::download_stream(shell, source.path, {STDOUT_FILENO, "standard output"}, events);
  } else if (source.job.empty()) {
    kube::upload(shell, source.path, target.path, events);
  } else {
    kube::download(shell, source.path, target.path, events);
  }
}

void copy(const CpOptions& options, int& exit_code) {
  const kube::Place source = kube::parse_place(options.source), target = kube::parse_place(options.target);
  if (source.job.empty() == target.job.empty())
    throw UsageError(
        "cp: exactly one of SOURCE and TARGET must be JOB:PATH; the other must be a local path, or - for a stream");
  const kube::PodChoice choice{parse_rank(options.rank), options.container, options.image};
  if (!choice.image.empty() && (choice.rank || !choice.container.empty()))
    throw UsageError("cp: --image starts a helper pod and cannot be used with --rank or --container");
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
    std::optional<kube::Client> client;
    std::unique_ptr<kube::Shell> shell;
    const kube::Place& remote = source.job.empty() ? target : source;
    if (!options.ray.empty()) {
      shell = open_ray_shell(options.ray, remote.job, remote.path, events.stop);
    } else {
      client.emplace(require_cluster(options.cluster));
      const JobName name = parse_job_name(remote.job, client->access());
      shell = std::make_unique<kube::PodShell>(*client, get_job(*client, name), choice, events.stop, events.notice);
    }
    transfer(*shell, source, target, events);
  } catch (const http::Stopped&) {
    exit_code = signals.exit_code();
  } catch (const kube::Interrupted&) {
    exit_code = signals.exit_code();
  }
}

}  // namespace

void add_cp(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<CpOptions>();
  app.add_option("source", options->source,
                 "File or directory to copy: JOB:PATH in a job, or a local PATH; - for standard input")
      ->required()
      ->type_name("FILE");
  app.add_option("target", options->target, "Destination: JOB:PATH in a job, or a local PATH; - for standard output")
      ->required()
      ->type_name("FILE");
  add_context_options(app, options->cluster);
  app.add_option("--rank", options->rank,
                 "Rank of the replica to copy through (default: the lowest rank of a running replica)")
      ->type_name("N");
  app.add_option("--container", options->container, "Container in the replica to copy through (default: the first)")
      ->type_name("NAME");
  app.add_option("--image", options->image,
                 "Copy through a helper pod with this image and the job's volume, even while the job is running")
      ->type_name("IMAGE");
  add_ray_option(app, options->ray, {"--namespace", "--context", "--rank", "--container", "--image"});
  app.footer(
      "As with cp(1), if TARGET is a directory, SOURCE is copied into it under its own name, and SOURCE/. means the\n"
      "contents of SOURCE. Modes, times, symbolic links and hard links are preserved. With -, a file is streamed as\n"
      "is, and a directory as a tar archive. If no replica is running, a helper pod accesses the job's volume for the\n"
      "duration of the copy. With --ray, files are copied through the head node, and a relative PATH is below the\n"
      "job's --checkpoint-path. If a local path contains a colon, begin it with ./, as in ./a:b.");
  app.callback([options, &exit_code] { copy(*options, exit_code); });
}

}  // namespace adaptdl::cli
