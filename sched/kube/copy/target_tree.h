// Writes files with untrusted names below a directory.
//
// Names are relative, without "." or ".." (split_name ensures this); each part is opened below the previous one and
// never through a link.
//
// Lifetime: the destructor removes an unfinished file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "kube/copy/cleanup.h"

namespace adaptdl::kube {

struct Attributes {
  mode_t mode = 0;
  std::time_t modified = 0;
};

// Returns the parts of a name except "."; no parts for the directory itself. Throws Error if the name is empty,
// absolute or contains "..".
std::vector<std::string> split_name(std::string_view name);

class TargetTree {
 public:
  explicit TargetTree(std::filesystem::path directory);

  // Creates a directory if it does not exist; finish() then sets its mode and time.
  void make_directory(const std::vector<std::string>& name, const Attributes& attributes);
  void make_link(const std::vector<std::string>& name, const std::string& to);
  // Adds another name for a file that this object has written.
  void make_hard_link(const std::vector<std::string>& name, const std::vector<std::string>& of);

  // Creates a file under a temporary name; `end_file` renames it.
  void begin_file(const std::vector<std::string>& name);
  void write(std::string_view bytes, std::uint64_t offset);
  void end_file(std::uint64_t size, const Attributes& attributes);

  void finish();

 private:
  struct Made {
    std::vector<std::string> name;
    Attributes attributes;
  };
  // Returns the directory that contains `name`, and creates it if it is missing.
  int parent(const std::vector<std::string>& name);
  Fd open_directory(const std::vector<std::string>& name, bool make);
  std::string temporary_name();
  std::string shown(const std::vector<std::string>& name) const;
  // Renames an entry that was created under a temporary name.
  void take_place(int directory, const std::string& temporary, const std::vector<std::string>& name);

  std::filesystem::path directory_;
  Fd root_, parent_fd_, file_;
  std::vector<std::string> parent_name_, file_name_;
  std::string file_temporary_;
  std::unique_ptr<Cleanup> file_cleanup_;
  std::vector<Made> made_;
  std::uint64_t count_ = 0;
};

}  // namespace adaptdl::kube
