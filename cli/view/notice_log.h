// NoticeLog appends the notices of a run that has no terminal to a file, each with a timestamp. The replicas' output is
// in the replicas' own logs.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "local/base/launch_observer.h"

namespace adaptdl::cli {

class NoticeLog : public sched::LaunchObserver {
 public:
  // Opens the file; a new file is private to the user. Throws Error if the file cannot be written.
  explicit NoticeLog(const std::filesystem::path& path);

  void line(int, sched::Stream, std::string_view, bool) override {}
  void notice(std::string_view text) override;
  void progress(const nlohmann::json&) override {}
  void tick() override {}
  int output_fd() const override { return -1; }
  void write_output() override {}
  bool congested() const override { return false; }
  bool output_closed() const override { return false; }

  // Appends text that has several lines, such as a summary.
  void print(std::string_view text);

 private:
  std::ofstream file_;
};

}  // namespace adaptdl::cli
