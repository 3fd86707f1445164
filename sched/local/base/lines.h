// Splits the output of replicas into lines.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::sched {

// Splits a stream of bytes at each '\n'. A line that is longer than the limit is passed on in pieces, so that memory
// use stays bounded even if a program never ends its line.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = std::size_t{1} << 20;  // bytes

  // Receives a line or a piece of one, without its '\n'. `ends` is true if `text` is the end of the line.
  using Sink = std::function<void(std::string_view text, bool ends)>;

  explicit LineSplitter(std::size_t max_line = kMaxLine) : max_line_(max_line) {}

  void feed(std::string_view bytes, const Sink& sink);
  // Ends the stream, and passes on the rest of an unfinished line.
  void finish(const Sink& sink);

 private:
  std::size_t max_line_;
  std::string partial_;
  bool inside_line_ = false;  // a piece of the current line has been passed on
};

// Keeps the last few lines of a replica's output for a report of its failure.
class LastLines {
 public:
  static constexpr std::size_t kLines = 20;
  static constexpr std::size_t kMaxLine = 2000;  // bytes; longer lines are truncated

  void add(std::string_view line);
  std::vector<std::string> get() const { return {lines_.begin(), lines_.end()}; }

 private:
  std::deque<std::string> lines_;
};

}  // namespace adaptdl::sched
