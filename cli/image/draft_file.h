// A file that is written under another name beside it, and takes its place when it is whole.
//
// Threading: belongs to one thread. One that goes before commit() leaves nothing.
#pragma once

#include <filesystem>
#include <string_view>

#include "socket.h"

namespace adaptdl::image {

class DraftFile {
 public:
  // A new file, whatever others have put beside `file`: no link is followed. Errors name `file`.
  explicit DraftFile(std::filesystem::path file);
  ~DraftFile();
  DraftFile(const DraftFile&) = delete;
  DraftFile& operator=(const DraftFile&) = delete;

  void write(std::string_view bytes);
  void commit();

 private:
  [[noreturn]] void fail() const;

  const std::filesystem::path file_;
  std::filesystem::path draft_;
  net::Fd fd_;
  bool committed_ = false;
};

}  // namespace adaptdl::image
