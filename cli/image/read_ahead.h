// Reads on a thread of its own, some buffers ahead of who takes the bytes.
//
// Threading: belongs to one thread; the source is called from another, until it ends, throws or this is destroyed.
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
  // `source` gives up to `size` bytes, and how many; 0 at the end.
  explicit ReadAhead(std::function<std::size_t(char* data, std::size_t size)> source);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Up to `size` bytes, and how many; 0 at the end. Throws what the source threw, after the bytes before it.
  std::size_t read(char* data, std::size_t size);

 private:
  void run();

  const std::function<std::size_t(char*, std::size_t)> source_;
  std::string taking_;  // the buffer that is being taken, and how far
  std::size_t taken_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> full_, spare_;
  bool ended_ = false, unwanted_ = false;
  std::exception_ptr failure_;
  std::jthread thread_;
};

}  // namespace adaptdl::image
