#include "local/record/run_directory.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "adaptdl/error.h"
#include "base/private_files.h"

namespace adaptdl::sched {
namespace fs = std::filesystem;

fs::path runs_directory() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && fs::path(state).is_absolute()) return fs::path(state) / "adaptdl" / "runs";
  const char* home = std::getenv("HOME");
  if (home == nullptr || !fs::path(home).is_absolute()) {
    throw UsageError("no home directory to keep runs in; set HOME or XDG_STATE_HOME");
  }
  return fs::path(home) / ".local" / "state" / "adaptdl" / "runs";
}

fs::path studies_directory(const fs::path& runs) { return runs.parent_path() / "studies"; }

void prepare_runs_directory(const fs::path& runs) {
  // If this fails, creating a run in the directory reports why.
  create_private_directories(runs);
  // A directory of another user keeps its mode, but the directories of this user's runs in it are private.
  restrict_to_user(runs);
}

fs::path make_run_directory(const fs::path& parent, const std::string& name) {
  prepare_runs_directory(parent);
  const fs::path first = parent / fmt::format("{}-{:%Y%m%d-%H%M%S}", name, fmt::localtime(std::time(nullptr)));
  fs::path directory = first;
  for (int i = 2; ::mkdir(directory.c_str(), kPrivateDirectory) != 0; ++i) {
    if (errno != EEXIST) {
      throw Error(fmt::format("cannot create directory '{}' for the run: {}; use --checkpoint DIR or --no-checkpoint",
                              directory.string(), std::strerror(errno)));
    }
    directory = fs::path(first) += fmt::format("-{}", i);
  }
  return directory;
}

}  // namespace adaptdl::sched
