// CopyLine shows the progress of a copy in the last line of a terminal.
//
// Threading: used by one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace adaptdl::cli {

// Returns at most `width` columns: "x  512 MiB of 1.00 GiB  50%  120 MiB/s  0:04 left".
std::string copy_text(const std::string& name, std::uint64_t done, std::optional<std::uint64_t> total,
                      std::chrono::milliseconds elapsed, std::size_t width);

// Redraws the line on standard error, if that is a terminal, at most ten times a second.
class CopyLine {
 public:
  explicit CopyLine(std::string name);
  ~CopyLine() { clear(); }
  void show(std::uint64_t done, std::optional<std::uint64_t> total);
  // Erases the line, for example before a line that stays.
  void clear();

 private:
  std::string name_;
  bool capable_, shown_ = false;
  std::chrono::steady_clock::time_point begin_, drawn_{};
};

}  // namespace adaptdl::cli
