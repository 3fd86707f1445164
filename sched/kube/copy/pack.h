// Splits a local directory for sending: small entries are packed into tar archives of limited size, and large files are
// sent one by one. After a broken connection, an upload continues with the interrupted archive or file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace adaptdl::kube {

struct PackedEntry {
  enum class Kind { kDirectory, kFile, kLink, kHardLink };
  Kind kind = Kind::kFile;
  std::string name;  // relative to the directory, "a/b"
  std::string to;    // target of a symbolic link; for a hard link, the first name of its file
  mode_t mode = 0;
  std::time_t modified = 0;
  std::uint64_t size = 0;
};

// Lists a directory's entries in a fixed order, each directory before its contents. Skips special files, such as
// sockets and devices, and passes a line for each of them to `notice`. Throws Error.
std::vector<PackedEntry> list_tree(const std::filesystem::path& directory,
                                   const std::function<void(const std::string&)>& notice);

// Writes entries to a tar archive in memory.
class Pack {
 public:
  explicit Pack(const std::filesystem::path& directory) : directory_(directory) {}
  // Directories are made writable by their owner, unless `final_modes` is set. The archive contains as many bytes of a
  // file as its entry states; if the file has become shorter, it is padded with zeros and `add` returns false. Throws
  // Error.
  bool add(const PackedEntry& entry, bool final_modes = false);
  // Returns the complete archive.
  std::string finish();

 private:
  struct Writer;
  std::shared_ptr<Writer> writer_;
  std::filesystem::path directory_;
};

}  // namespace adaptdl::kube
