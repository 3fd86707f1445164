#include "terminal/notice_lines.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/counted.h"
#include "base/printable.h"

namespace adaptdl::cli {

void NoticeLines::put(std::string_view text) {
  if (queue_.full() && !keep_all_) {
    ++dropped_;
  } else {
    if (dropped_ > 0)
      queue_.put(STDERR_FILENO, fmt::format("adaptdl: {} dropped because standard error was not being read\n",
                                            counted(dropped_, "notice")));
    dropped_ = 0;
    queue_.put(STDERR_FILENO, "adaptdl: " + printable(text) + '\n');
  }
  queue_.write_some();
}

}  // namespace adaptdl::cli
