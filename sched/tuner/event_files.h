// Reads the values of a metric from the TensorBoard event files below a directory, while programs write them.
//
// All files with "tfevents" in their names are read, in directories at any depth, including those that appear later. A
// scalar belongs to the metric if its tag is the metric's name. If the same tag appears in several directories, the
// metric's name may begin with the directory: "validation/loss" also means the tag "loss" in a directory named
// "validation".
//
// Files are open only while they are being read, so that many trials can be followed with few descriptors.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tune/study/event_record.h"
#include "tune/study/result.h"

namespace adaptdl::sched::tune {

struct EventResult {
  Result result;
  double wall_time = 0;   // seconds since 1970
  std::string file;       // relative to the directory
  std::uint64_t end = 0;  // end of the record, in bytes from the beginning of the file
};

class EventFiles {
 public:
  using Notice = std::function<void(std::string_view)>;

  // The directory may appear later. `notice` receives a line about each file that cannot be read completely.
  EventFiles(std::filesystem::path directory, std::string metric, Notice notice);

  // Skips the file's records up to and including the one that ends at `end`.
  void skip(const std::string& file, std::uint64_t end);
  // Returns some or all of the results since the last call. Results that are already written are ordered by wall time,
  // and results from the same file stay in order.
  std::vector<EventResult> read();
  // Returns whether the last read() left available data unread.
  bool has_more() const noexcept { return has_more_; }
  // Returns whether the last read() lacked the descriptors or memory to read everything. The next call tries again.
  bool is_blocked() const noexcept { return is_blocked_; }

 private:
  struct File {
    std::vector<std::string> tags;               // tags that denote the metric in this file
    std::uint64_t size = 0;                      // size when the file was last checked
    std::uint64_t offset = 0;                    // offset of the next record
    std::uint64_t needed = kEventHeader;         // bytes of that record, or of its header while its size is unknown
    std::uint64_t readable_from = kEventHeader;  // the size at which more of the file can be read
    std::deque<EventResult> found;               // not delivered yet
    bool is_reported = false;
  };

  File& file_of(const std::string& name);
  void look();
  File* next_file(std::uint64_t& budget);
  void read_part(const std::string& name, File& file, std::uint64_t& budget);
  void read_records(const std::string& name, File& file, std::string_view bytes);
  void add_result(const std::string& name, File& file, std::string_view event);
  void fail(const std::string& name, File& file, int error);
  void report(File& file, const std::string& text);

  const std::filesystem::path directory_;
  const std::string metric_;
  const Notice notice_;
  std::map<std::string, File> files_;
  bool has_more_ = false, is_blocked_ = false;
};

}  // namespace adaptdl::sched::tune
