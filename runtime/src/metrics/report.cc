#include "adaptdl/report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "adaptdl/metrics.h"
#include "adaptdl/progress.h"

namespace adaptdl {
namespace {

std::string result_line(std::string_view metric, double value) {
  nlohmann::ordered_json result{{metric, value}};
  if (metrics::in_use() && metrics::batch_sizes()) {
    const double samples = metrics::progress() * static_cast<double>(metrics::batch_sizes()->init_batch_size);
    if (std::isfinite(samples)) result["step"] = std::llround(samples);
  }
  if (const auto epoch = progress::get("epoch")) result["epoch"] = *epoch;
  return result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Returns whether the whole line is on disk. Because of O_APPEND and a single write(), lines of several processes do
// not mix.
bool append_line(const std::string& file, std::string line) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  struct stat kind {};
  // Other output to the same pipe or terminal may have left a line unfinished.
  if (::fstat(fd, &kind) == 0 && !S_ISREG(kind.st_mode)) line.insert(0, "\n");
  bool written = ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  written = written && (::fdatasync(fd) == 0 || errno == EINVAL || errno == EROFS);  // fdatasync does not support pipes
  const int error = errno;
  ::close(fd);
  errno = error;
  return written;
}

}  // namespace

void report(std::string_view metric, double value) {
  if (metric.empty() || metric == "step" || metric == "epoch")
    throw UsageError(fmt::format("invalid metric name '{}': must not be empty, 'step' or 'epoch'", metric));
  progress::set(metric, value);
  const auto file = env::results_file();
  if (!file || env::replica_rank() != 0) return;
  if (append_line(*file, result_line(metric, value))) return;
  const int error = errno;
  static std::once_flag once;
  std::call_once(once, [&] {
    log::warn(fmt::format("cannot write results to ADAPTDL_RESULTS_FILE '{}': {}", *file, std::strerror(error)));
  });
}

}  // namespace adaptdl
