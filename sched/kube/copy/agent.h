// The copy agent (agent/agent.cc): a small program of ours that takes large files in, gives them out and computes their
// checksums at the other end of a copy, faster than the tools of images do. Each command brings it along at the
// beginning of its input, and its file is removed before it runs, so that nothing stays whatever breaks.
//
// Where it cannot run (another machine's instructions, no directory that is writable and executable), and for what is
// not worth its way, the image's own tools are used.
//
// Threading: used by one thread at a time. Lifetime: the shell outlives it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/copy/shell.h"
#include "kube/copy/sum.h"

namespace adaptdl::kube {

// The program, for machines as this one; empty: it could not be built.
extern const std::string_view kAgentProgram;

// It turned out that there is no agent: what was under way is to be done from the beginning, with the image's tools.
struct NoAgent {};

class Agent {
 public:
  // From this size of a file on it is worth its way.
  static constexpr std::uint64_t kWorth = std::uint64_t{32} << 20;

  // For files of up to `largest` bytes. It looks for a place in /tmp, /var/tmp and `directory`.
  Agent(Shell& shell, std::uint64_t largest, const std::string& directory = "/tmp");

  // Whether it is there, as far as is known.
  explicit operator bool() const { return there_; }
  // What files are to be compared by.
  SumKind kind() const { return there_ ? SumKind::kXxh128 : SumKind::kSha256; }

  // The sum of so many bytes at the beginning of a file; null: the place has no tool for it. Throws Broken, Error.
  std::optional<std::string> sum(const std::string& path, std::uint64_t size);

  // Writes what `feed` gives, `size` bytes in all, to a file from `offset` on; its output is their sum. Throws NoAgent,
  // Broken. REQUIRES *this.
  Outcome receive(const std::string& path, std::uint64_t offset, std::uint64_t size, const Feed& feed);

  // A command, whose input is kAgentProgram, that writes the first `size` bytes of a file but `offset` of them to its
  // output, and the sum of all of them, in a line, to its error output. REQUIRES *this.
  std::vector<std::string> send(const std::string& path, std::uint64_t offset, std::uint64_t size) const;
  // Throws NoAgent if that is how the command ended, and Error if that comes when something was copied already.
  void check(const Outcome& outcome, bool begun = false);

 private:
  std::vector<std::string> arguments(const std::vector<std::string>& words) const;

  Shell& shell_;
  const std::string directory_;
  bool there_;
};

}  // namespace adaptdl::kube
