// A directory into which names that nobody vouches for are written.
//
// Names are relative, with no "." or ".." in them (split_name sees to that); each part is opened below the last and
// never through a link.
//
// Threading: used by one thread at a time. Lifetime: a file that is not finished when it goes leaves nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kube/copy/cleanup.h"
#include "local/fd.h"

namespace adaptdl::kube {

struct Attributes {
  mode_t mode = 0;
  std::time_t modified = 0;
};

// The parts of a name, without those that are "."; none for the directory itself. Throws Error if the name is empty,
// absolute or has "..".
std::vector<std::string> split_name(std::string_view name);

class TargetTree {
 public:
  explicit TargetTree(std::filesystem::path directory);

  // Makes it, if it is not there; it gets its mode and time at the end, in finish().
  void make_directory(const std::vector<std::string>& name, const Attributes& attributes);
  void make_link(const std::vector<std::string>& name, const std::string& to);
  // Another name of a file that was written here.
  void make_hard_link(const std::vector<std::string>& name, const std::vector<std::string>& of);

  // A new file that takes its name in `end_file`.
  void begin_file(const std::vector<std::string>& name);
  void write(std::string_view bytes, std::uint64_t offset);
  void end_file(std::uint64_t size, const Attributes& attributes);

  void finish();

 private:
  struct Made {
    std::vector<std::string> name;
    Attributes attributes;
  };
  // The directory that `name` is in, made if it is missing.
  int parent(const std::vector<std::string>& name);
  sched::Fd open_directory(const std::vector<std::string>& name, bool make);
  std::string temporary_name();
  std::string shown(const std::vector<std::string>& name) const;
  // Gives what was made under a temporary name its own.
  void take_place(int directory, const std::string& temporary, const std::vector<std::string>& name);

  std::filesystem::path directory_;
  sched::Fd root_, parent_fd_, file_;
  std::vector<std::string> parent_name_, file_name_;
  std::string file_temporary_;
  std::unique_ptr<Cleanup> file_cleanup_;
  std::vector<Made> made_;
  std::uint64_t count_ = 0;
};

}  // namespace adaptdl::kube
