#include "local/base/program.h"

#include <doctest/doctest.h>

#include <fstream>

#include "adaptdl/error.h"
#include "temporary_directory.h"

namespace program_test {

using namespace adaptdl;
namespace fs = std::filesystem;

namespace {

// Makes a temporary directory the current one. The directory contains an executable `tool`, a `plain.py` that is not
// executable, and a `folder`.
struct Place {
  Place() {
    std::ofstream(directory.path() / "tool") << "#!/bin/sh\n";
    fs::permissions(directory.path() / "tool", fs::perms::owner_all);
    std::ofstream(directory.path() / "plain.py");
    fs::create_directory(directory.path() / "folder");
    fs::current_path(directory.path());
  }
  ~Place() { fs::current_path(before); }

  testing::TemporaryDirectory directory;
  fs::path before = fs::current_path();
};

}  // namespace

TEST_CASE_FIXTURE(Place, "a path is used as is, and a name is searched for in PATH") {
  CHECK(sched::find_program("./tool", "") == "./tool");
  CHECK(sched::find_program("tool", "/nowhere:" + directory.path().string()) == directory.path() / "tool");
  CHECK(fs::equivalent(sched::find_program("tool", "/nowhere::/nowhere"), "./tool"));
}

TEST_CASE_FIXTURE(Place, "a program that cannot be run is rejected with the reason") {
  const auto refused = [](const std::string& name, const char* why) {
    CHECK_THROWS_WITH_AS(sched::find_program(name, "/nowhere"), why, UsageError);
  };
  refused("tool", "cannot find 'tool' in PATH; did you mean './tool'?");
  refused("./missing", "cannot run './missing': no such file");
  refused("missing", "cannot find 'missing' in PATH or in the current directory");
  refused("./folder", "cannot run './folder': it is a directory");
  refused("./plain.py",
          "cannot run './plain.py': it is not executable; try `python3 ./plain.py`, or `chmod +x ./plain.py`");
  refused("plain.py",
          "cannot run 'plain.py': it is not executable; try `python3 ./plain.py`, or `chmod +x ./plain.py`");
  refused("", "the program name is empty");
}

}  // namespace program_test
