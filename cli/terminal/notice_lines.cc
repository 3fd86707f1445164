#include "terminal/notice_lines.h"

#include <unistd.h>

#include "printable.h"

namespace adaptdl::cli {

void NoticeLines::put(std::string_view text) {
  if (!queue_.full()) queue_.put(STDERR_FILENO, "adaptdl: " + printable(text) + '\n');
  queue_.write_some();
}

}  // namespace adaptdl::cli
