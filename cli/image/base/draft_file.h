// A file that is written under a temporary name and renamed when it is complete.
//
// The destructor removes the temporary file unless commit() has succeeded.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/fd.h"

namespace adaptdl::image {

class DraftFile {
 public:
  // Creates a new file next to `file`; never opens an existing file or link. Throws an Error that names `file`.
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
  Fd fd_;
  bool committed_ = false;
};

}  // namespace adaptdl::image
