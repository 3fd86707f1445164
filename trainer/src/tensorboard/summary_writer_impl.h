// The implementation of SummaryWriter, shared by its source files.
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
#include "tensorboard/event_file.h"
#include "tensorboard/summary_writer_messages.h"
#include "tensorboard/summary_writer_state.h"

namespace adaptdl {

struct SummaryWriter::Impl {
  const std::filesystem::path log_dir;
  const std::string name;  // the name of log_dir in checkpoints
  const SummaryWriterOptions options;
  std::optional<internal::EventFile> file;  // none on replicas that do not write

  Impl(std::filesystem::path directory, const SummaryWriterOptions& writer_options);

  // Writes the beginning of the file: the version and, if given, the step from which TensorBoard discards the events in
  // earlier files.
  void begin(std::optional<std::int64_t> purge_step);

  // Returns the writer for a run of add_scalars, and creates it if it does not exist. Returns null if its file cannot
  // be created, and logs a warning the first time; the next call tries again. Thread-safe.
  Impl* run(const std::string& directory);

  void flush();

  // Logs the event that `make(tag)` encodes, unless the job has logged it before.
  template <class Make>
  void log(std::string_view any_tag, std::int64_t step, Make make) {
    if (!file) return;
    const auto tag = internal::mended_utf8(any_tag);
    if (internal::is_replayed(name, tag, step)) return;
    file->append(make(tag));
    internal::count_event(name, tag, step);
  }

 private:
  std::mutex mutex_;                                   // guards the members below
  std::map<std::string, std::unique_ptr<Impl>> runs_;  // by the directory's name in log_dir; never removed
  bool warned_ = false;
};

}  // namespace adaptdl
