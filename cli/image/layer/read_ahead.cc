#include "image/layer/read_ahead.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace adaptdl::image {
namespace {

constexpr std::size_t kReadAheadBuffer = std::size_t{256} << 10;
constexpr std::size_t kBuffers = 8;

}  // namespace

ReadAhead::ReadAhead(std::function<std::size_t(char*, std::size_t)> source)
    : source_(std::move(source)), spare_(kBuffers), thread_([this] { run(); }) {}

ReadAhead::~ReadAhead() {
  {
    const std::scoped_lock lock(mutex_);
    unwanted_ = true;
  }
  changed_.notify_all();
}

void ReadAhead::run() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    changed_.wait(lock, [&] { return unwanted_ || !spare_.empty(); });
    if (unwanted_) return;
    std::string buffer = std::move(spare_.front());
    spare_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    std::size_t size = 0;
    buffer.resize(kReadAheadBuffer);
    try {
      for (std::size_t count = 1; count > 0 && size < buffer.size(); size += count)
        count = source_(buffer.data() + size, buffer.size() - size);
    } catch (...) {
      failure = std::current_exception();
    }
    buffer.resize(size);
    lock.lock();
    ended_ = failure || size < kReadAheadBuffer;
    failure_ = failure;
    full_.push_back(std::move(buffer));
    changed_.notify_all();
  }
}

std::size_t ReadAhead::read(char* data, std::size_t size) {
  if (taken_ == taking_.size()) {
    std::unique_lock lock(mutex_);
    if (!taking_.empty()) spare_.push_back(std::exchange(taking_, {}));
    taken_ = 0;
    changed_.notify_all();
    changed_.wait(lock, [&] { return ended_ || !full_.empty(); });
    if (!full_.empty()) {
      taking_ = std::move(full_.front());
      full_.pop_front();
    }
    if (taking_.empty() && failure_) std::rethrow_exception(failure_);
  }
  const std::size_t count = std::min(size, taking_.size() - taken_);
  std::memcpy(data, taking_.data() + taken_, count);
  taken_ += count;
  return count;
}

}  // namespace adaptdl::image
