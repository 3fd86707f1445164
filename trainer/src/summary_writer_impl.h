// The contents of a SummaryWriter, for the sources that implement it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "adaptdl/torch/summary_writer.h"
#include "event_file.h"
#include "summary_writer_messages.h"
#include "summary_writer_state.h"

namespace adaptdl {

struct SummaryWriter::Impl {
  const std::filesystem::path log_dir;
  const std::string name;  // of log_dir, in checkpoints
  const SummaryWriterOptions options;
  std::optional<internal::EventFile> file;  // none on replicas that do not write

  Impl(std::filesystem::path directory, const SummaryWriterOptions& writer_options);

  // Begins the file with its version and the step from which earlier files are void, if any, and writes them.
  void begin(std::optional<std::int64_t> purge_step);

  // The writer of a run of add_scalars, which is created if it does not exist. Null, after a warning for the first of
  // them, if its file cannot be created; the next call tries again. Thread-safe.
  Impl* run(const std::string& directory);

  void flush();

  // Logs what `make(tag)` encodes, unless the job has logged it before.
  template <class Make>
  void log(std::string_view any_tag, std::int64_t step, Make make) {
    if (!file) return;
    const auto tag = internal::mended_utf8(any_tag);
    if (internal::is_replayed(name, tag, step)) return;
    file->append(make(tag));
    internal::count_event(name, tag, step);
  }

 private:
  std::mutex mutex_;                                   // guards what follows
  std::map<std::string, std::unique_ptr<Impl>> runs_;  // by the name of their directory in log_dir; only added to
  bool warned_ = false;
};

}  // namespace adaptdl
