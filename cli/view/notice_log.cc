#include "view/notice_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/private_files.h"

namespace adaptdl::cli {

NoticeLog::NoticeLog(const std::filesystem::path& path) {
  // If this fails, opening the file fails too and reports why.
  create_private_file(path);
  file_.open(path, std::ios::app);
  if (!file_) throw Error(fmt::format("cannot write '{}': {}", path.string(), std::strerror(errno)));
}

void NoticeLog::notice(std::string_view text) {
  print(fmt::format("{:%Y-%m-%d %H:%M:%S} {}\n", fmt::localtime(std::time(nullptr)), printable(text)));
}

// While the disk is full, text is lost; clear() allows later text to be written.
void NoticeLog::print(std::string_view text) {
  file_.clear();
  file_ << text << std::flush;
}

}  // namespace adaptdl::cli
