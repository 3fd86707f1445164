// Files of TensorBoard events: a sequence of records, each an encoded Event, framed as TensorFlow's TFRecord:
//
//   length: 8 bytes | masked CRC-32C of length: 4 | data: length bytes | masked CRC-32C of data: 4
//
// all little-endian. Records gather in memory; a thread writes them. The Python and Rust readers take a record that is
// cut off at the end of a file as one that is yet to come.
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

// The name of this machine, for names of files.
std::string host_name();

// Frames `data` as one record.
std::string tfrecord(std::string_view data);

// Thread-safe.
class EventFile {
 public:
  // What waits in memory at most, in bytes: when the disk takes nothing, later records are dropped.
  static constexpr std::size_t kMaxWaiting = std::size_t{64} << 20;

  // Creates the directory, with parents, and a new file in it. Throws Error if that fails. `flush_every`: how long a
  // record waits at most; 0: each is written at once.
  EventFile(const std::filesystem::path& directory, std::chrono::milliseconds flush_every);
  // Writes what waits.
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void append(std::string_view data);
  // Writes what waits, in the calling thread.
  void flush();
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  struct Descriptor {
    int value = -1;
    ~Descriptor();
  };

  void write_regularly();
  // Writes unwritten_ as far as that works. REQUIRES writing_.
  void write();
  void warn_once(const std::string& why);

  const std::chrono::milliseconds flush_every_;
  std::filesystem::path path_;
  Descriptor file_;
  std::atomic<bool> warned_ = false;

  std::mutex writing_;     // held while the file is written, so that records keep their order; locked before mutex_
  std::string unwritten_;  // guarded by writing_: what is being written, or could not be

  std::mutex mutex_;  // guards what follows; held for moments only
  std::condition_variable wake_;
  std::string waiting_;
  std::size_t held_ = 0;  // bytes of waiting_ and unwritten_
  bool stopping_ = false;

  std::thread thread_;
};

// Flushes the files that are open in this process: for exits that run no destructors.
void flush_event_files();

}  // namespace adaptdl::internal
