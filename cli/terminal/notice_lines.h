// Notices on standard error, "adaptdl: TEXT" on a line each, written only as fast as the reader takes them. What the
// reader has not taken yet waits, up to a limit beyond which notices are dropped; if it went away, so is the rest.
//
// Threading: one thread at a time.
#pragma once

#include <string_view>

#include "terminal/output_queue.h"

namespace adaptdl::cli {

class NoticeLines {
 public:
  void put(std::string_view text);
  // Writes what is taken without waiting.
  void write_some() { queue_.write_some(); }
  // Writes everything, as long as that takes.
  void write_all() { queue_.write_all(); }

 private:
  OutputQueue queue_;
};

}  // namespace adaptdl::cli
