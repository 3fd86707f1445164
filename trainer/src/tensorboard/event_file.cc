#include "tensorboard/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <boost/crc.hpp>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "base/signals_blocked.h"

namespace adaptdl::internal {

namespace {

constexpr std::size_t kBatch = std::size_t{1} << 20;  // this many bytes are written without waiting for flush_every

template <class Number>
void append_little_endian(std::string& out, Number number) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) out += static_cast<char>(number >> (8 * i) & 0xff);
}

// TFRecord masks checksums, because computing the CRC of data that contains embedded CRCs is problematic.
std::uint32_t masked_crc32c(std::string_view data) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(data.data(), data.size());
  const auto sum = static_cast<std::uint32_t>(crc.checksum());
  return (sum >> 15 | sum << 17) + 0xa282ead8u;
}

[[noreturn]] void refuse(const std::filesystem::path& path, int error) {
  throw Error(
      fmt::format("TensorBoard: cannot write events to '{}': {}; use another directory, or unset "
                  "ADAPTDL_TENSORBOARD_LOGDIR",
                  path.string(), std::generic_category().message(error)));
}

// The open files, for flush_event_files. Never destroyed, because a global writer may outlive it.
struct OpenFiles {
  std::mutex mutex;
  std::set<EventFile*> files;
};
OpenFiles& open_files() {
  static auto* const files = new OpenFiles;
  return *files;
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

std::string tfrecord(std::string_view data) {
  std::string record;
  record.reserve(data.size() + 16);
  append_little_endian(record, static_cast<std::uint64_t>(data.size()));
  append_little_endian(record, masked_crc32c(record));
  record += data;
  append_little_endian(record, masked_crc32c(data));
  return record;
}

EventFile::Descriptor::~Descriptor() {
  if (value >= 0) ::close(value);
}

EventFile::EventFile(const std::filesystem::path& directory, std::chrono::milliseconds flush_every)
    : flush_every_(flush_every) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) refuse(directory, error.value());
  static std::atomic<int> count = 0;
  path_ =
      directory / fmt::format("events.out.tfevents.{}.{}.{}.{}", std::time(nullptr), host_name(), ::getpid(), count++);
  file_.value = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (file_.value < 0) refuse(directory, errno);
  if (flush_every_.count() > 0) {
    // Signals must reach the training thread, whose blocking calls they interrupt.
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { write_regularly(); });
  }
  const std::lock_guard lock(open_files().mutex);
  open_files().files.insert(this);
}

EventFile::~EventFile() {
  {
    const std::lock_guard lock(open_files().mutex);
    open_files().files.erase(this);
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  flush();
}

void EventFile::append(std::string_view data) {
  const auto record = tfrecord(data);
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    full = held_ + record.size() > kMaxWaiting;
    if (!full) {
      waiting_ += record;
      held_ += record.size();
      if (waiting_.size() >= kBatch) wake_.notify_one();
    }
  }
  if (full) warn_once("the buffer of unwritten events is full, and events are lost");
  if (flush_every_.count() <= 0) flush();
}

void EventFile::flush() {
  const std::lock_guard writing(writing_);
  {
    const std::lock_guard lock(mutex_);
    unwritten_ += waiting_;
    waiting_.clear();
  }
  write();
  const std::lock_guard lock(mutex_);
  held_ = waiting_.size() + unwritten_.size();
}

// If a record is written only in part, the next attempt completes it.
void EventFile::write() {
  std::size_t done = 0;
  while (done < unwritten_.size()) {
    const auto written = ::write(file_.value, unwritten_.data() + done, unwritten_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      warn_once(fmt::format("{}; events are kept in memory until the file can be written",
                            std::generic_category().message(errno)));
      break;
    }
    done += static_cast<std::size_t>(written);
  }
  unwritten_.erase(0, done);
}

void EventFile::warn_once(const std::string& why) {
  if (warned_.exchange(true)) return;
  log::warn(fmt::format("TensorBoard: cannot write to '{}': {}; training continues", path_.string(), why));
}

void EventFile::write_regularly() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait_for(lock, flush_every_, [this] { return stopping_ || waiting_.size() >= kBatch; });
    if (stopping_) return;
    lock.unlock();
    flush();
    lock.lock();
  }
}

void flush_event_files() {
  const std::lock_guard lock(open_files().mutex);
  for (auto* file : open_files().files) file->flush();
}

}  // namespace adaptdl::internal
