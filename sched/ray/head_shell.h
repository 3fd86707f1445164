// HeadShell runs commands on the head node of a Ray cluster, so that files can be copied from and to that node.
//
// The job server is the only part of a cluster that a workstation can be expected to reach, so the shell is a job that
// runs share/adaptdl/ray/shell.py. The script receives commands and input as packages, and sends output through the
// job's log, which contains the output until the shell ends.
//
// Threading: any thread may use a shell. A shell uses two threads of its own.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "kube/copy/cleanup.h"
#include "kube/copy/shell.h"
#include "ray/access.h"

namespace adaptdl::ray {

class HeadShell final : public kube::Shell {
 public:
  // Starts the job `id` with this metadata. `scripts` is the directory that contains shell.py, and `directory` is the
  // working directory of all commands. Throws Error if the job does not start, and kube::Interrupted or http::Stopped
  // if a stop is requested before it has started. After a later stop request, commands can still be started, so that a
  // copy can clean up.
  HeadShell(const Access& access, const std::string& id, const std::map<std::string, std::string>& metadata,
            const std::filesystem::path& scripts, const std::string& directory, const std::stop_token& stop);
  // Kills commands that are running, ends the job, and removes its record. Ray keeps the log file, which is then empty.
  // If the process exits without calling the destructor, kube::Cleanup::run_all() ends the job, but its record remains.
  ~HeadShell() override;
  HeadShell(const HeadShell&) = delete;
  HeadShell& operator=(const HeadShell&) = delete;

  // Errors are final: the shell itself tries for up to 30 s to restore a lost connection.
  std::unique_ptr<kube::Process> start(const std::vector<std::string>& command, bool with_input) override;
  std::string name() const override { return "the head node"; }
  std::string missing_program() const override { return "install the program there"; }

 private:
  class Session;
  std::shared_ptr<Session> session_;
  std::unique_ptr<kube::Cleanup> cleanup_;
};

}  // namespace adaptdl::ray
