#include "local/record/run_directory.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "temporary_directory.h"

namespace run_directory_test {

using namespace adaptdl;
namespace fs = std::filesystem;

TEST_CASE("runs are stored in the user's state directory") {
  ::setenv("HOME", "/home/me", 1);
  ::setenv("XDG_STATE_HOME", "/state", 1);
  CHECK(sched::runs_directory() == "/state/adaptdl/runs");
  ::setenv("XDG_STATE_HOME", "relative/is/ignored", 1);
  CHECK(sched::runs_directory() == "/home/me/.local/state/adaptdl/runs");
  ::unsetenv("XDG_STATE_HOME");
  ::unsetenv("HOME");
  CHECK_GOLDEN(::testing::error_of<UsageError>([&] { sched::runs_directory(); }));
}

TEST_CASE("each run gets its own directory, even if several start within one second") {
  const testing::TemporaryDirectory directory;
  const fs::path a = sched::make_run_directory(directory.path() / "x" / "y", "digits");
  const fs::path b = sched::make_run_directory(directory.path() / "x" / "y", "digits");
  const fs::path c = sched::make_run_directory(directory.path() / "x" / "y", "digits");
  CHECK(a != b);
  CHECK(b != c);
  CHECK(a != c);
  CHECK(fs::is_directory(c));
  CHECK(a.filename().string().starts_with("digits-20"));
}

TEST_CASE("run directories are private to the user, regardless of the umask") {
  for (const mode_t mask : {0, 022, 077}) {
    const testing::TemporaryDirectory directory;
    const mode_t before = ::umask(mask);
    fs::create_directory(directory.path() / "old");
    for (const char* parent : {"old", "new/runs"}) {
      const fs::path run = sched::make_run_directory(directory.path() / parent, "digits");
      for (const fs::path& path : {run, run.parent_path()})
        CHECK(fs::status(path).permissions() == fs::perms::owner_all);
    }
    ::umask(before);
  }
}

TEST_CASE("failure to create a run directory is an error") {
  CHECK_THROWS_AS(sched::make_run_directory("/proc/nowhere", "digits"), Error);
}

}  // namespace run_directory_test
