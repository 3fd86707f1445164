// NoticeLines writes notices to standard error, one line "adaptdl: TEXT" each, only as fast as the reader accepts them.
// Notices that the reader has not accepted yet wait in a queue. While the queue is full, new notices are dropped; a
// line before the next queued notice reports their number. If the reader has closed its end, all notices are dropped.
#pragma once

#include <cstddef>
#include <string_view>

#include "terminal/output_queue.h"

namespace adaptdl::cli {

class NoticeLines {
 public:
  void put(std::string_view text);
  // From now on, keeps every notice even if the queue is full.
  void keep_all() { keep_all_ = true; }
  // Writes as much as the reader accepts without blocking.
  void write_some() { queue_.write_some(); }
  // Writes everything, and blocks until that is done.
  void write_all() { queue_.write_all(); }

 private:
  OutputQueue queue_;
  std::size_t dropped_ = 0;  // since the last queued notice
  bool keep_all_ = false;
};

}  // namespace adaptdl::cli
