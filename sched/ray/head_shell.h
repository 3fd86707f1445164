// HeadShell runs commands on the head node of a Ray cluster, for copies.
//
// The job server is the only part of a cluster that a workstation can be expected to reach, so the shell is a job: it
// runs share/adaptdl/ray/shell.py, which receives commands and input as packages, and sends output through the job's
// log, which holds the output until the shell ends.
//
// Threading: any thread may use a shell. A shell uses two threads of its own.
#pragma once

#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "kube/copy/shell.h"
#include "ray/access.h"

namespace adaptdl::ray {

class HeadShell final : public kube::Shell {
 public:
  // Starts the job `id`. `scripts` is the directory that contains shell.py, and `directory` is the working directory of
  // all commands. Throws Error if the job does not start, and kube::Interrupted, as do all members, after a stop
  // request.
  HeadShell(const Access& access, const std::string& id, const std::filesystem::path& scripts,
            const std::string& directory, const std::stop_token& stop);
  // Kills commands that are running, and removes the job with its log.
  ~HeadShell() override;
  HeadShell(const HeadShell&) = delete;
  HeadShell& operator=(const HeadShell&) = delete;

  // Errors are final: a lost connection is reestablished by the shell, for up to 30 s.
  std::unique_ptr<kube::Process> start(const std::vector<std::string>& command, bool with_input) override;
  std::string name() const override { return "the head node"; }

 private:
  class Session;
  std::shared_ptr<Session> session_;
};

}  // namespace adaptdl::ray
