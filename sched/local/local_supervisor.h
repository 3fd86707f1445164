// LocalSupervisor runs the supervisor of a run on one machine, and passes what it receives to the launcher's loop.
//
// Threading: used by the launcher's thread. The server's thread keeps what replicas report until it is taken.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "local/fd.h"
#include "supervisor/supervisor.h"

namespace adaptdl::sched {

class LocalSupervisor : private SupervisorListener {
 public:
  // A replica's request for the generation after `after`.
  struct Call {
    std::string replica_id;
    int after = 0;
    bool broken = false;
  };

  // What was received since the last take().
  struct Heard {
    bool hints_changed = false;  // or a replica's runtime gives no hint of following generations
    std::vector<Call> calls;     // the last one of each replica, separately for `broken`
  };

  // Starts to serve. `token_file` is created with the token for programs that read it from a file, and removed at the
  // end; empty: none. `address` is the IP address to serve on, for replicas on other nodes; empty: this machine only.
  // Throws Error if the file cannot be created, or the system refuses the server.
  explicit LocalSupervisor(std::string job_id, std::filesystem::path token_file = {}, const std::string& address = "");
  ~LocalSupervisor() override;

  std::string url() const { return server_.url(); }
  // The token that replicas must send.
  const std::string& token() const noexcept { return token_; }
  // Empty: none.
  const std::filesystem::path& token_file() const noexcept { return token_file_; }

  // Readable when take() has something to return.
  int fd() const noexcept { return event_.get(); }
  Heard take();
  // Returns the newest progress of each replica that reported it in the format of Kubeflow since the last call, by its
  // id, which is empty if the request named none. These reports do not make fd() readable.
  std::map<std::string, nlohmann::json> take_progress();
  nlohmann::json hints() const { return server_.hints(job_id_); }

  // Begins a start of the job, the first or a later one: previous generations are forgotten.
  void begin(int restarts, Generation generation);
  // Sets the replicas of this start.
  void set_generation(int restarts, Generation generation);

 private:
  void hints_changed(const std::string& job_id) override;
  void foreign_discovers(const std::string& job_id) override { hints_changed(job_id); }
  void replica_waits(const std::string& job_id, const std::string& replica_id, int after, bool broken) override;
  void member_follows(const std::string&, int) override {}
  void progress_reported(const std::string& job_id, const std::string& replica_id,
                         const nlohmann::json& report) override;
  void wake() const;

  std::string job_id_;
  std::string token_;
  std::filesystem::path token_file_;
  Fd event_;
  std::mutex mutex_;
  bool hints_changed_ = false;
  std::map<std::pair<std::string, bool>, int> calls_;  // `after` by replica id and `broken`
  std::map<std::string, nlohmann::json> progress_;     // by replica id
  Supervisor server_;                                  // last, since it calls the functions above until it is destroyed
};

}  // namespace adaptdl::sched
