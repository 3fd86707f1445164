#include "local/run_directory.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>

#include "adaptdl/error.h"

namespace adaptdl::sched {
namespace fs = std::filesystem;

fs::path runs_directory() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && fs::path(state).is_absolute()) return fs::path(state) / "adaptdl" / "runs";
  const char* home = std::getenv("HOME");
  if (home == nullptr || !fs::path(home).is_absolute()) {
    throw UsageError("there is no home directory to keep runs in: set HOME or XDG_STATE_HOME");
  }
  return fs::path(home) / ".local" / "state" / "adaptdl" / "runs";
}

fs::path make_run_directory(const fs::path& parent, const std::string& name) {
  std::error_code error;
  fs::create_directories(parent, error);
  const fs::path first = parent / fmt::format("{}-{:%Y%m%d-%H%M%S}", name, fmt::localtime(std::time(nullptr)));
  fs::path directory = first;
  for (int i = 2; !fs::create_directory(directory, error); ++i) {
    if (error) {
      throw Error(fmt::format("cannot make {} for the run: {}; give --checkpoint DIR or --no-checkpoint",
                              directory.string(), error.message()));
    }
    directory = fs::path(first) += fmt::format("-{}", i);
  }
  return directory;
}

}  // namespace adaptdl::sched
