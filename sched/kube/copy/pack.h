// A directory of this machine as what is to be sent of it: small things in tar archives of some size, large files one
// by one.
//
// What is sent in pieces can go on after a break with the piece that was under way.
//
// Threading: used by one thread at a time.
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
  std::string name;  // below the directory, "a/b"
  std::string to;    // of a link, or the name that a hard link is another of
  mode_t mode = 0;
  std::time_t modified = 0;
  std::uint64_t size = 0;
};

// All that is in a directory, each directory before what is in it, in an order that does not change. `notice` gets a
// line for what is none of these kinds. Throws Error.
std::vector<PackedEntry> list_tree(const std::filesystem::path& directory,
                                   const std::function<void(const std::string&)>& notice);

// Puts entries into a tar archive in memory.
class Pack {
 public:
  explicit Pack(const std::filesystem::path& directory) : directory_(directory) {}
  // A directory is made open for what is to be written in it, unless these are its `final_modes`. A file has as many
  // bytes as its entry says; false: it has fewer by now, and zeros take their place. Throws Error.
  bool add(const PackedEntry& entry, bool final_modes = false);
  // The archive with its end.
  std::string finish();

 private:
  struct Writer;
  std::shared_ptr<Writer> writer_;
  std::filesystem::path directory_;
};

}  // namespace adaptdl::kube
