// A file of TensorBoard events is a sequence of records. Each record is an encoded Event, framed as a TensorFlow
// TFRecord:
//
//   length: 8 bytes | masked CRC-32C of length: 4 | data: length bytes | masked CRC-32C of data: 4
//
// All numbers are little-endian. Records are collected in memory and written by a thread. The Python and Rust readers
// treat a truncated record at the end of a file as one that is still being written.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace adaptdl::internal {

// Returns the name of this machine, for use in file names.
std::string host_name();

// Frames `data` as one record.
std::string tfrecord(std::string_view data);

// An event file that is open for writing. Thread-safe.
class EventFile {
 public:
  // The maximum size in bytes of the records in memory. If the file cannot be written, records beyond this limit are
  // dropped.
  static constexpr std::size_t kMaxWaiting = std::size_t{64} << 20;

  // Creates the directory, with parents, and a new file in it. Throws Error if that fails. `flush_every`: the maximum
  // time that a record waits; if 0, each record is written immediately.
  EventFile(const std::filesystem::path& directory, std::chrono::milliseconds flush_every);
  // Writes the waiting records.
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void append(std::string_view data);
  // Writes the waiting records, in the calling thread.
  void flush();
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  struct Descriptor {
    int value = -1;
    ~Descriptor();
  };

  void write_regularly();
  // Writes as much of unwritten_ as possible. REQUIRES that writing_ is locked.
  void write();
  void warn_once(const std::string& why);

  const std::chrono::milliseconds flush_every_;
  std::filesystem::path path_;
  Descriptor file_;
  std::atomic<bool> warned_ = false;

  std::mutex writing_;     // held while the file is written, so that records keep their order; locked before mutex_
  std::string unwritten_;  // guarded by writing_: records that are being written or could not be written

  std::mutex mutex_;  // guards the members below; held only briefly
  std::condition_variable wake_;
  std::string waiting_;
  std::size_t held_ = 0;  // bytes of waiting_ and unwritten_
  bool stopping_ = false;

  std::thread thread_;
};

// Flushes the open event files of this process, for exits that run no destructors.
void flush_event_files();

}  // namespace adaptdl::internal
