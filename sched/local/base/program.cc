#include "local/base/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <sstream>

#include "adaptdl/error.h"

namespace adaptdl::sched {
namespace fs = std::filesystem;
namespace {

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool can_execute(const fs::path& path) { return is_file(path) && ::access(path.c_str(), X_OK) == 0; }

// Returns a hint on how to run a file that exists but is not executable.
std::string how_to_run(const std::string& name) {
  if (name.ends_with(".py")) return fmt::format("try `python3 {}`, or `chmod +x {}`", name, name);
  if (name.ends_with(".sh")) return fmt::format("try `sh {}`, or `chmod +x {}`", name, name);
  return fmt::format("try `chmod +x {}`", name);
}

}  // namespace

fs::path find_program(const std::string& name, const std::string& search_path) {
  if (name.empty()) throw UsageError("the program name is empty");
  std::error_code ignored;
  if (name.find('/') != std::string::npos) {
    if (can_execute(name)) return name;
    if (fs::is_directory(name, ignored)) throw UsageError(fmt::format("cannot run '{}': it is a directory", name));
    if (is_file(name))
      throw UsageError(fmt::format("cannot run '{}': it is not executable; {}", name, how_to_run(name)));
    throw UsageError(fmt::format("cannot run '{}': no such file", name));
  }
  std::istringstream directories(search_path);
  for (std::string directory; std::getline(directories, directory, ':');) {
    // By tradition, an empty entry means the current directory.
    const fs::path candidate = fs::path(directory.empty() ? "." : directory) / name;
    if (can_execute(candidate)) return candidate;
  }
  if (can_execute(fs::path(".") / name)) {
    throw UsageError(fmt::format("cannot find '{}' in PATH; did you mean './{}'?", name, name));
  }
  if (is_file(name))
    throw UsageError(fmt::format("cannot run '{}': it is not executable; {}", name, how_to_run("./" + name)));
  throw UsageError(fmt::format("cannot find '{}' in PATH or in the current directory", name));
}

}  // namespace adaptdl::sched
