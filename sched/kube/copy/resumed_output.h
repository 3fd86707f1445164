// Reads a command's output over as many connections as necessary.
//
// After the connection breaks, the command is started again at the point where the last piece ended, so the command
// must always write the same output.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kube/copy/events.h"
#include "kube/copy/shell.h"
#include "kube/copy/sum.h"

namespace adaptdl::kube {

class ResumedOutput {
 public:
  struct Command {
    std::vector<std::string> words;
    std::string_view input = {};
  };
  // Returns the command that skips the first `offset` bytes.
  using CommandAt = std::function<Command(std::uint64_t offset)>;
  ResumedOutput(Shell& shell, const CopyEvents& events, CommandAt command, SumKind kind = SumKind::kSha256)
      : shell_(shell), events_(events), persistence_(events.persistence()), command_(std::move(command)), sum_(kind) {}

  // Sets a check that is called before the output is resumed after a break. If the check throws, reading ends.
  void before_resume(std::function<void()> check) { before_resume_ = std::move(check); }

  // Sets the maximum total number of bytes to read (default: no limit).
  void limit(std::uint64_t bytes) { limit_ = bytes; }

  // Returns the next piece; empty if the command has ended. Throws Interrupted, and Error after a long time without a
  // connection.
  std::string_view read();

  std::uint64_t bytes() const { return bytes_; }                         // number of bytes read so far
  std::string sum() const { return sum_.hex(); }                         // checksum of the bytes read so far
  Outcome outcome() const { return {process_->exit_code(), "", err_}; }  // REQUIRES: read() returned an empty piece

 private:
  bool read_some();

  Shell& shell_;
  const CopyEvents& events_;
  Persistence persistence_;
  CommandAt command_;
  std::function<void()> before_resume_;
  std::unique_ptr<Process> process_;
  bool resuming_ = false, ended_ = false;
  std::string buffer_, err_;
  std::uint64_t bytes_ = 0, limit_ = std::numeric_limits<std::uint64_t>::max();
  Sum sum_;
};

}  // namespace adaptdl::kube
