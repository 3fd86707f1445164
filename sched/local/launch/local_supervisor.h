// LocalSupervisor hosts a run's supervisor in the launcher's process, and passes the supervisor's reports to the
// launcher's event loop.
//
// Threading: only the launcher's thread uses it. The server's thread stores the replicas' reports until the launcher
// takes them.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "supervisor/supervisor.h"

namespace adaptdl::sched {

class LocalSupervisor : private SupervisorListener {
 public:
  // A replica's request for a generation later than `after`.
  struct Call {
    std::string replica_id;
    int after = 0;
    bool broken = false;
  };

  // What was received since the last take().
  struct Received {
    bool hints_changed = false;  // also set when a replica uses a runtime without generations
    std::vector<Call> calls;     // the last call of each replica for each value of `broken`
  };

  // Starts the server. Writes the token to `token_file` for programs that read it from a file, and removes the file at
  // the end. If `token_file` is empty, no file is written. `address` is the IP address to listen on for replicas on
  // other nodes. If `address` is empty, only this machine can connect. Throws Error if the file or the server cannot be
  // created.
  explicit LocalSupervisor(std::string job_id, std::filesystem::path token_file = {}, const std::string& address = "");
  ~LocalSupervisor() override;

  std::string url() const { return server_.url(); }
  // Returns the token that replicas must send.
  const std::string& token() const noexcept { return token_; }
  // Returns the token file's path, or an empty path if there is none.
  const std::filesystem::path& token_file() const noexcept { return token_file_; }

  // Returns a descriptor that is readable when take() has something to return.
  int fd() const noexcept { return event_.get(); }
  Received take();
  // Returns the newest progress that each replica reported in Kubeflow's format since the last call, by replica id. The
  // id is empty if the request did not contain one. These reports do not make fd() readable.
  std::map<std::string, nlohmann::json> take_progress();
  nlohmann::json hints() const { return server_.hints(job_id_); }

  // Begins the first or a later start of the job, and forgets all previous generations.
  void begin(int restarts, Generation generation);
  // Sets the current generation of this start.
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
