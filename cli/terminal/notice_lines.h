// NoticeLines writes notices to standard error, one line "adaptdl: TEXT" each, only as fast as the reader accepts them.
// The rest waits in a queue. Notices are dropped while the queue is full, which the next one reports, and when the
// reader has closed its end.
//
// Threading: used by one thread at a time.
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
  // Writes everything, and blocks as long as that takes.
  void write_all() { queue_.write_all(); }

 private:
  OutputQueue queue_;
  std::size_t dropped_ = 0;  // since the last queued notice
  bool keep_all_ = false;
};

}  // namespace adaptdl::cli
