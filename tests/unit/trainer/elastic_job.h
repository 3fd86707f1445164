// A job that is restarted repeatedly, each time with any number of replicas, and continues from its checkpoint.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "adaptdl/collective.h"
#include "replica_processes.h"
#include "temporary_directory.h"

namespace testing {

// The exit code of a replica that saved a checkpoint and exited because a signal asked it to stop.
inline constexpr int kCheckpointed = 143;

class ElasticJob {
 public:
  // Runs `program` on replicas, each in its own process, with the collective initialized. Returns their exit codes by
  // rank.
  std::vector<int> run(int replicas, const std::function<void(int rank)>& program) const {
    return run_replicas(replicas, [&](int rank) {
      prepare();
      adaptdl::collective::initialize();
      program(rank);
      adaptdl::collective::teardown();
    });
  }

  // Does the same, and requires that all replicas exit with `code`.
  void run_to(int code, int replicas, const std::function<void(int rank)>& program) const {
    for (const int got : run(replicas, program)) {
      if (got != code)
        throw std::runtime_error("a replica exited with " + std::to_string(got) + " instead of " +
                                 std::to_string(code) + ":\n" + errors());
    }
  }

  // Sets up the environment and standard error of a replica of this job, for tests that fork processes themselves.
  void prepare() const {
    setenv("ADAPTDL_CHECKPOINT_PATH", checkpoints().c_str(), 0);
    setenv("ADAPTDL_CHECKPOINT_EVERY", "0", 0);
    setenv("ADAPTDL_COLLECTIVE_TIMEOUT", "30", 1);
    const int fd = open((directory_.path() / "stderr").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(fd, STDERR_FILENO);
    close(fd);
  }

  std::filesystem::path checkpoints() const { return directory_.path() / "checkpoints"; }
  const std::filesystem::path& path() const { return directory_.path(); }

  // Returns the number of checkpoints.
  std::size_t count_checkpoints() const {
    if (!std::filesystem::exists(checkpoints())) return 0;
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoints()))
      count += entry.path().filename().string().starts_with("checkpoint-");
    return count;
  }

  // Returns the number of the newest checkpoint; -1 if there is none.
  int newest_checkpoint() const {
    int newest = -1;
    if (!std::filesystem::exists(checkpoints())) return newest;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoints())) {
      const std::string name = entry.path().filename();
      if (name.starts_with("checkpoint-")) newest = std::max(newest, std::stoi(name.substr(name.find('-') + 1)));
    }
    return newest;
  }

  // Appends a line to the job's notes, with a single write, so that the lines of several replicas do not mix.
  void note(const std::string& line) const {
    const auto text = line + "\n";
    const int fd = open(notes_path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const auto written = write(fd, text.data(), text.size());
    close(fd);
    if (written != static_cast<ssize_t>(text.size())) throw std::runtime_error("cannot write " + notes_path().string());
  }

  // Returns the lines noted by all replicas of all runs.
  std::vector<std::string> notes() const {
    std::vector<std::string> lines;
    std::ifstream file(notes_path());
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  // Returns everything that the replicas wrote to standard error.
  std::string errors() const {
    std::ifstream file(directory_.path() / "stderr");
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path notes_path() const { return directory_.path() / "notes"; }

  TemporaryDirectory directory_;
};

}  // namespace testing
