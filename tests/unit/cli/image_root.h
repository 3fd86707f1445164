// A small root directory with a real shell, and steps that run in it. A program that includes this header must enter a
// build namespace before main, while it has only one thread.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "image/sandbox/build_namespace.h"
#include "image/sandbox/sandbox.h"
#include "temporary_directory.h"

namespace testing {

namespace fs = std::filesystem;
using namespace adaptdl::image;

inline const BuildNamespace& build_namespace = enter_build_namespace();

inline void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

inline std::string read(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Finds mounts that have appeared since the object was created. Mounts of other processes may disappear at any time,
// for example when their mount point is removed in another namespace, but no new ones can appear.
class Mounts {
 public:
  std::set<std::string> added() const {
    std::set<std::string> added;
    std::ranges::set_difference(now(), before_, std::inserter(added, added.end()));
    return added;
  }

 private:
  static std::set<std::string> now() {
    std::ifstream stream("/proc/self/mountinfo");
    std::set<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.insert(line);
    return lines;
  }
  std::set<std::string> before_ = now();
};

// Returns all paths in a directory, with "/" after directories, sorted.
inline std::vector<std::string> tree(const fs::path& directory) {
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory))
    paths.push_back(entry.path().lexically_relative(directory).string() +
                    (entry.symlink_status().type() == fs::file_type::directory ? "/" : ""));
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Creates a root with busybox, its commands and users, but without the directories on which a sandbox mounts something.
inline void make_root(const fs::path& root) {
  fs::create_directories(root / "bin");
  fs::copy_file("/usr/bin/busybox", root / "bin/busybox");
  for (const char* command :
       {"cat",  "chmod",    "chown", "cp",       "cut", "dd",  "echo",   "env",    "false", "grep",
        "head", "hostname", "id",    "kill",     "ln",  "ls",  "mkdir",  "mknod",  "mount", "mv",
        "nc",   "ps",       "pwd",   "readlink", "rm",  "seq", "sh",     "sleep",  "sort",  "stat",
        "su",   "touch",    "true",  "umount",   "wc",  "ip",  "chroot", "setsid", "ping"})
    fs::create_symlink("busybox", root / "bin" / command);
  write(root / "etc/passwd", "root:x:0:0:root:/root:/bin/sh\nmaker:x:500:501:Maker:/home/maker:/bin/sh\n");
  write(root / "etc/group", "root:x:0:\nmakers:x:501:\ntools:x:502:maker\n");
}

// Runs steps one after the other, each with its own upper directory.
class Steps {
 public:
  Steps() { make_root(root()); }

  fs::path root() const { return directory_.path() / "root"; }
  fs::path path(const std::string& name) const { return directory_.path() / name; }

  // Returns a step that runs a shell script on the root, with a new upper directory.
  SandboxStep step(const std::string& script) {
    ++number_;
    SandboxStep step;
    step.root = {{root()}, upper(), path("work" + std::to_string(number_))};
    step.scratch = path("scratch" + std::to_string(number_));
    fs::create_directories(step.scratch);
    step.caches = path("caches");
    step.command = {"/bin/sh", "-c", script};
    step.environment = {{"PATH", "/bin"}};
    return step;
  }
  // Returns the upper directory of the last step.
  fs::path upper() const { return path("upper" + std::to_string(number_)); }

  // Returns all lines that the step prints, followed by its exit status if it failed.
  std::string run(const SandboxStep& step, const std::stop_token& stop = {}) {
    std::string text;
    const StepEnd end = run_in_sandbox(
        step, [&](std::string_view line) { text += std::string(line) + "\n"; }, stop);
    return end.success() ? text : text + end.text();
  }
  std::string run(const std::string& script) { return run(step(script)); }

 private:
  TemporaryDirectory directory_;
  int number_ = 0;
};

inline StepMount mount_of(Mount::Type type, const std::string& target) {
  StepMount result;
  result.mount.type = type;
  result.mount.target = target;
  result.mount.read_only = type == Mount::Type::kBind || type == Mount::Type::kSecret;
  if (type == Mount::Type::kCache) result.mount.id = target;
  return result;
}

}  // namespace testing
