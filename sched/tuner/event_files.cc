#include "tuner/event_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "base/fd.h"
#include "base/utf8.h"
#include "tuner/result_source.h"

namespace adaptdl::sched::tune {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPart = std::uint64_t{256} << 10;  // bytes to read from a file at a time
// The maximum size of a record in bytes. Scalars are in small records; larger records contain images or models, and are
// skipped.
constexpr std::uint64_t kMaxRecord = std::uint64_t{16} << 20;

bool is_transient(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

// Returns the tags that denote the metric in a file, as described in event_files.h.
std::vector<std::string> tags_of(const std::string& metric, const fs::path& file) {
  std::vector<std::string> tags{metric};
  const std::string directory = "/" + file.parent_path().string();
  for (std::size_t slash = metric.find('/'); slash != std::string::npos; slash = metric.find('/', slash + 1))
    if (slash > 0 && directory.ends_with("/" + metric.substr(0, slash))) tags.push_back(metric.substr(slash + 1));
  return tags;
}

// Fills the buffer with the file's bytes from the offset on, or shortens the buffer if the file ends first. Returns 0
// or the errno.
int read_at(int fd, std::uint64_t offset, std::string& buffer) {
  std::size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t size = ::pread(fd, buffer.data() + done, buffer.size() - done, static_cast<off_t>(offset + done));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno;
    if (size == 0) break;
    done += static_cast<std::size_t>(size);
  }
  buffer.resize(done);
  return 0;
}

Result result_of(const EventScalar& scalar) {
  constexpr std::int64_t kMaxStep = 9'000'000'000'000'000;  // same as for JSON lines
  Result result;
  result.value = std::isfinite(scalar.value) ? scalar.value : std::numeric_limits<double>::quiet_NaN();
  if (scalar.step >= 0 && scalar.step < kMaxStep) result.step = scalar.step;
  return result;
}

}  // namespace

EventFiles::EventFiles(fs::path directory, std::string metric, Notice notice)
    : directory_(std::move(directory)), metric_(std::move(metric)), notice_(std::move(notice)) {}

EventFiles::File& EventFiles::file_of(const std::string& name) {
  const auto [place, is_new] = files_.try_emplace(name);
  if (is_new) place->second.tags = tags_of(metric_, name);
  return place->second;
}

void EventFiles::skip(const std::string& file, std::uint64_t end) {
  File& skipped = file_of(file);
  skipped.offset = std::max(skipped.offset, end);
  skipped.readable_from = skipped.offset + kEventHeader;
}

std::vector<EventResult> EventFiles::read() {
  has_more_ = is_blocked_ = false;
  look();
  std::vector<EventResult> results;
  std::uint64_t budget = kMaxResultRead;
  while (File* const next = next_file(budget)) {
    results.push_back(std::move(next->found.front()));
    next->found.pop_front();
  }
  return results;
}

// Finds new files, and updates the sizes of all files.
void EventFiles::look() {
  std::error_code error;
  fs::recursive_directory_iterator at(directory_, fs::directory_options::skip_permission_denied, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (at->path().filename().string().find("tfevents") == std::string::npos) continue;
    const std::string name = at->path().lexically_relative(directory_).string();
    std::error_code failure;
    // Results are stored with the file's name in JSON, so the name must be UTF-8.
    if (!at->is_regular_file(failure) || !is_utf8(name)) continue;
    const std::uint64_t size = at->file_size(failure);
    if (!failure) file_of(name).size = size;
  }
  is_blocked_ = is_transient(error.value());
}

// Returns the file with the earliest result, or null if there is no result or an unread part may contain an earlier
// one.
EventFiles::File* EventFiles::next_file(std::uint64_t& budget) {
  File* next = nullptr;
  for (auto& [name, file] : files_) {
    const auto is_unread = [&file = file] { return file.found.empty() && file.size >= file.readable_from; };
    while (is_unread() && budget > 0) read_part(name, file, budget);
    if (is_unread()) {
      has_more_ = true;
      return nullptr;
    }
    if (!file.found.empty() && (next == nullptr || file.found.front().wall_time < next->found.front().wall_time))
      next = &file;
  }
  return next;
}

void EventFiles::read_part(const std::string& name, File& file, std::uint64_t& budget) {
  const fs::path path = directory_ / name;
  // Without O_NONBLOCK, opening a FIFO that has replaced the file would wait for its other end.
  const Fd input(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!input) return fail(name, file, errno);
  const std::uint64_t part = std::max(kPart, file.needed);
  std::string buffer(part, '\0');
  if (const int error = read_at(input.get(), file.offset, buffer)) return fail(name, file, error);
  budget -= std::min<std::uint64_t>(budget, std::max<std::uint64_t>(buffer.size(), 1));
  // The file may have grown or shrunk since it was checked.
  const std::uint64_t end = file.offset + buffer.size();
  file.size = buffer.size() < part ? end : std::max(file.size, end);
  read_records(name, file, buffer);
}

void EventFiles::read_records(const std::string& name, File& file, std::string_view bytes) {
  using State = EventFrame::State;
  EventFrame frame = read_event_frame(bytes);
  while (frame.state == State::kWhole || frame.state == State::kDamaged) {
    file.offset += frame.size;
    if (frame.state == State::kWhole) add_result(name, file, frame.data);
    bytes.remove_prefix(frame.size);
    frame = read_event_frame(bytes);
  }
  if (frame.state == State::kUnreadable) {
    report(file,
           fmt::format("cannot read file '{}' from byte {}: damaged record; later results in the file are ignored",
                       (directory_ / name).string(), file.offset));
    // On a network file system, the record may turn out to be intact once the file grows.
    file.needed = kEventHeader;
    file.readable_from = file.size + 1;
    return;
  }
  file.needed = frame.size;
  if (frame.size > kMaxRecord) {
    file.offset += frame.size;
    file.needed = kEventHeader;
  }
  file.readable_from = file.offset + file.needed;
}

// Keeps one result per record: all values in a record have the same step, so only the last one counts.
void EventFiles::add_result(const std::string& name, File& file, std::string_view event) {
  for (const EventScalar& scalar : read_event_scalars(event)) {
    if (std::ranges::find(file.tags, scalar.tag) == file.tags.end()) continue;
    if (!file.found.empty() && file.found.back().end == file.offset) file.found.pop_back();
    file.found.push_back({result_of(scalar), scalar.wall_time, name, file.offset});
  }
}

// Makes this call to read() stop reading the file.
void EventFiles::fail(const std::string& name, File& file, int error) {
  file.size = 0;
  if (is_transient(error))
    is_blocked_ = true;
  else if (error != ENOENT)
    report(file, fmt::format("cannot read file '{}': {}", (directory_ / name).string(), std::strerror(error)));
}

void EventFiles::report(File& file, const std::string& text) {
  if (!std::exchange(file.is_reported, true)) notice_(text);
}

}  // namespace adaptdl::sched::tune
