// What replicas write, cut into lines.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::sched {

// Cuts a stream of any bytes at each '\n'. A line that grows beyond the limit is given out in pieces, so that a program
// which never ends its line costs bounded memory.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = std::size_t{1} << 20;  // bytes

  // A line or a piece of one, without its '\n'. `ends` says whether the line ended there.
  using Sink = std::function<void(std::string_view text, bool ends)>;

  explicit LineSplitter(std::size_t max_line = kMaxLine) : max_line_(max_line) {}

  void feed(std::string_view bytes, const Sink& sink);
  // The stream is over: gives out what is left of a line that was not ended.
  void finish(const Sink& sink);

 private:
  std::size_t max_line_;
  std::string partial_;
  bool inside_line_ = false;  // pieces of the current line were given out
};

// The last few lines of a replica, for the report of its failure.
class LastLines {
 public:
  static constexpr std::size_t kLines = 20;
  static constexpr std::size_t kMaxLine = 2000;  // bytes; longer lines are cut

  void add(std::string_view line);
  std::vector<std::string> get() const { return {lines_.begin(), lines_.end()}; }

 private:
  std::deque<std::string> lines_;
};

}  // namespace adaptdl::sched
