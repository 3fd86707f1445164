// Notices on standard error, one line "adaptdl: TEXT" each, written as fast as the reader accepts them. The rest waits
// in a queue. Notices are dropped while the queue is full, and when the reader has closed its end.
//
// Threading: one thread at a time.
#pragma once

#include <string_view>

#include "terminal/output_queue.h"

namespace adaptdl::cli {

class NoticeLines {
 public:
  void put(std::string_view text);
  // Writes as much as the reader accepts without blocking.
  void write_some() { queue_.write_some(); }
  // Writes everything, as long as that takes.
  void write_all() { queue_.write_all(); }

 private:
  OutputQueue queue_;
};

}  // namespace adaptdl::cli
