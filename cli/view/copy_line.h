// CopyLine shows the progress of a copy on the last line of a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace adaptdl::cli {

// Returns text such as "x  512 MiB of 1.00 GiB  50%  120 MiB/s  0:04 left", of at most `width` columns.
std::string copy_text(const std::string& name, std::uint64_t done, std::optional<std::uint64_t> total,
                      std::chrono::milliseconds elapsed, std::size_t width);

// Redraws the line on standard error at most ten times per second, if standard error is a terminal.
class CopyLine {
 public:
  explicit CopyLine(std::string name);
  ~CopyLine() { clear(); }
  void show(std::uint64_t done, std::optional<std::uint64_t> total);
  // Erases the line, for example before a permanent line is printed.
  void clear();

 private:
  std::string name_;
  bool capable_, shown_ = false;
  std::chrono::steady_clock::time_point begin_, drawn_{};
};

}  // namespace adaptdl::cli
