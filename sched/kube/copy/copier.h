// The copier (copier/copier_program.cc) is a small program at the remote end of a copy. It receives large files, sends
// them and computes their checksums faster than the tools in container images do. Each command that uses the copier
// sends it again, at the beginning of the command's input. The copier's file is removed before the copy begins, so that
// a failed copy does not leave the file behind.
//
// The image's own tools are used if the copier cannot run (another architecture, no writable and executable directory)
// or if sending it does not pay off.
//
// Lifetime: the shell must outlive the copier.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/copy/shell.h"
#include "kube/copy/sum.h"

namespace adaptdl::kube {

// The program, built for this machine's architecture; empty if it could not be built.
extern const std::string_view kCopierProgram;

// Thrown if it turns out that the copier cannot run. The caller must then repeat the whole operation with the image's
// tools.
struct NoCopier {};

class Copier {
 public:
  // The smallest file size for which sending the copier pays off.
  static constexpr std::uint64_t kWorth = std::uint64_t{32} << 20;

  // Prepares to copy files of up to `largest` bytes. The copier is placed in /tmp, /var/tmp or `directory`.
  Copier(Shell& shell, std::uint64_t largest, const std::string& directory = "/tmp");

  // Returns whether the copier is used. The copier is not used if all files are smaller than kWorth, in a build without
  // the copier, or once it has turned out that the copier cannot run.
  explicit operator bool() const { return there_; }
  // The kind of checksum with which files are compared.
  SumKind kind() const { return there_ ? SumKind::kXxh128 : SumKind::kSha256; }

  // Returns the checksum of a file's first `size` bytes; null if the remote end has no tool for it. Throws Broken,
  // Error.
  std::optional<std::string> sum(const std::string& path, std::uint64_t size);

  // Writes the `size` bytes from `feed` to a file at `offset`. The `out` of the returned Outcome is the checksum of
  // these bytes. Throws NoCopier, Broken. REQUIRES: *this is true.
  Outcome receive(const std::string& path, std::uint64_t offset, std::uint64_t size, const Feed& feed);

  // Returns a command that writes a file's bytes in the range [offset, size) to standard output, and a line with the
  // checksum of the first `size` bytes to standard error. The command's input must be kCopierProgram. REQUIRES: *this
  // is true.
  std::vector<std::string> send(const std::string& path, std::uint64_t offset, std::uint64_t size) const;
  // Throws if the command ended because the copier cannot run: NoCopier, or Error if bytes have already been copied
  // (`begun`).
  void check(const Outcome& outcome, bool begun = false);

 private:
  std::vector<std::string> arguments(const std::vector<std::string>& words) const;

  Shell& shell_;
  const std::string directory_;
  bool there_;
};

}  // namespace adaptdl::kube
