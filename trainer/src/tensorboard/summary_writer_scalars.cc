// The runs of add_scalars. Each name has a writer with its own directory.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "tensorboard/summary_writer_impl.h"

namespace adaptdl {

SummaryWriter::Impl* SummaryWriter::Impl::run(const std::string& directory) {
  const std::lock_guard lock(mutex_);
  if (const auto known = runs_.find(directory); known != runs_.end()) return known->second.get();
  auto run = std::make_unique<Impl>(log_dir / directory, options);
  try {
    run->file.emplace(run->log_dir, options.flush_every);
  } catch (const Error& error) {
    if (!std::exchange(warned_, true))
      log::warn(fmt::format("training continues without these events: {}", error.what()));
    return nullptr;
  }
  run->begin(internal::resume_events(run->name, options.purge_step, name));
  return runs_.emplace(directory, std::move(run)).first->second.get();
}

void SummaryWriter::Impl::flush() {
  if (file) file->flush();
  std::vector<Impl*> runs;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [directory, run] : runs_) runs.push_back(run.get());
  }
  for (auto* const run : runs) run->flush();
}

void SummaryWriter::add_scalars(std::string_view main_tag, const std::map<std::string, double>& values,
                                std::int64_t step) {
  if (!impl_->file) return;
  for (const auto& [name, value] : values) {
    auto directory = internal::mended_utf8(fmt::format("{}_{}", main_tag, name));
    std::replace(directory.begin(), directory.end(), '/', '_');
    if (auto* const run = impl_->run(directory))
      run->log(main_tag, step,
               [&, number = value](const auto& tag) { return internal::scalar_event(tag, number, step); });
  }
}

}  // namespace adaptdl
