// Reads on a separate thread, several buffers ahead of the consumer.
//
// Threading: an object must be used from one thread. A second thread calls the source until the source ends or throws,
// or the object is destroyed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace adaptdl::image {

class ReadAhead {
 public:
  // `source` reads up to `size` bytes, and returns their number; 0 at the end.
  explicit ReadAhead(std::function<std::size_t(char* data, std::size_t size)> source);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Reads up to `size` bytes, and returns their number; 0 at the end. Rethrows the source's exception once all bytes
  // have been returned.
  std::size_t read(char* data, std::size_t size);

 private:
  void run();

  const std::function<std::size_t(char*, std::size_t)> source_;
  std::string taking_;  // the buffer that is being consumed, and the offset in it
  std::size_t taken_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> full_, spare_;
  bool ended_ = false, unwanted_ = false;
  std::exception_ptr failure_;
  std::jthread thread_;
};

}  // namespace adaptdl::image
