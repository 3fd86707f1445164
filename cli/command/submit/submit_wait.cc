#include "command/submit/submit_wait.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "command/jobs/cluster_watch.h"
#include "http/http.h"
#include "kube/jobs/job_logs.h"
#include "terminal/print.h"

namespace adaptdl::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLookAtJobEvery = std::chrono::milliseconds(100);
// A state that lasts only for a moment, such as before the first scheduling cycle, is not reported.
constexpr auto kReportAfter = std::chrono::seconds(2);

// Reports the last text that it has received, once that text has not changed for a while.
class SteadyNotice {
 public:
  explicit SteadyNotice(const std::function<void(const std::string&)>& notice) : notice_(notice) {}
  void update(const std::string& text) {
    if (text != latest_) {
      latest_ = text;
      since_ = Clock::now();
    }
    if (latest_.empty() || latest_ == reported_ || Clock::now() - since_ < kReportAfter) return;
    notice_(reported_ = latest_);
  }

 private:
  const std::function<void(const std::string&)>& notice_;
  std::string latest_, reported_;
  Clock::time_point since_;
};

std::string describe_state(const kube::JobView& view) {
  return fmt::format("{}{}{}", view.job.phase.empty() ? "Pending" : view.job.phase, view.why.empty() ? "" : ": ",
                     view.why);
}

struct Ending {
  std::string failure;  // empty if the job succeeded
  bool over = true;     // false if the job continues
};

Ending ending_of(const kube::JobView& view) {
  if (view.job.phase == "Succeeded") return {};
  return {fmt::format("job '{}' failed{}{}", view.job.name, view.why.empty() ? "" : ": ", view.why)};
}

Ending wait_for_job(kube::Client& client, const SubmittedJob& job, const WaitOptions& options,
                    std::optional<Clock::time_point> until, const std::stop_token& stop) {
  ClusterWatch watch(client, job.name.name_space, "");
  SteadyNotice outages(options.notice), troubles(options.notice);
  for (std::string state = "Pending"; !stop.stop_requested(); std::this_thread::sleep_for(kLookAtJobEvery)) {
    if (const std::string outage = watch.outage(); !outage.empty()) outages.update(outage);
    if (watch.ready()) {
      const auto views = watch.views(kube::Time(std::chrono::system_clock::now()));
      const auto found =
          std::ranges::find_if(views, [&job](const kube::JobView& view) { return view.job.uid == job.uid; });
      if (found == views.end()) return {fmt::format("job '{}' was deleted before it ended", job.name.name)};
      state = describe_state(*found);
      if (found->job.ended()) return ending_of(*found);
      troubles.update(found->why.empty() ? "" : fmt::format("job '{}' is {}", job.name.name, state));
    }
    if (until && Clock::now() > *until)
      return {fmt::format("timed out waiting for job '{}' ({}); the job was not stopped", job.name.name, state), false};
  }
  throw http::Stopped();
}

std::optional<Clock::time_point> deadline(const WaitOptions& options) {
  if (!options.max_time) return std::nullopt;
  return Clock::now() + *options.max_time;
}

bool show_line(const kube::Replica& replica, kube::Time, std::string_view line) {
  print_raw(fmt::format("[{}] {}\n", replica.rank < 0 ? printable(replica.name) : std::to_string(replica.rank), line));
  return std::ferror(stdout) == 0;
}

}  // namespace

void wait_for_jobs(kube::Client& client, const std::vector<SubmittedJob>& jobs, const WaitOptions& options,
                   const std::stop_token& stop) {
  const auto until = deadline(options);
  for (const SubmittedJob& job : jobs) {
    const Ending ending = wait_for_job(client, job, options, until, stop);
    if (!ending.failure.empty()) throw Error(ending.failure);
  }
}

void follow_job(kube::Client& client, const SubmittedJob& job, const WaitOptions& options,
                const std::stop_token& stop) {
  std::stop_source enough;
  const std::stop_callback pass_on(stop, [&enough] { enough.request_stop(); });
  std::mutex mutex;
  const WaitOptions with{options.max_time, [&](const std::string& text) {
                           const std::scoped_lock lock(mutex);
                           options.notice(text);
                         }};
  Ending ending;
  std::exception_ptr unknown;
  std::jthread waiter([&] {
    try {
      ending = wait_for_job(client, job, with, deadline(with), enough.get_token());
      if (ending.over) return;  // the log ends when the job does
    } catch (...) {
      unknown = std::current_exception();
    }
    enough.request_stop();
  });
  try {
    const kube::JobLogsQuery query{
        .name_space = job.name.name_space, .job = job.name.name, .rank = {}, .since = {}, .tail = {}, .follow = true};
    kube::read_job_logs(client, query, enough.get_token(),
                        {.line = show_line, .flush = [] { return std::fflush(stdout) == 0; }, .notice = with.notice});
  } catch (const kube::ApiError& error) {
    with.notice(error.what());
  } catch (const Error&) {
    // The job had no output; the message about the job's end gives the reason.
  }
  if (std::ferror(stdout) != 0) enough.request_stop();
  waiter.join();
  if (unknown) std::rethrow_exception(unknown);
  if (!ending.failure.empty()) throw Error(ending.failure);
}

}  // namespace adaptdl::cli
