// The supervisor of a run on one machine, and what it hears, for the launcher's loop.
//
// Threading: used by the launcher's thread; what replicas say comes from the server's and is kept until it is taken.
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
  // A replica asks for the generation after `after`.
  struct Call {
    std::string replica_id;
    int after = 0;
    bool broken = false;
  };

  // What was said since it was taken last.
  struct Heard {
    bool hints_changed = false;  // or a replica is of a runtime that gives no hint of following generations
    std::vector<Call> calls;     // of a replica that asked often, the last
  };

  // Starts to serve. `token_file`: created with the token for programs that read it from a file, and removed at the
  // end; empty: none. Throws Error if the system refuses that.
  explicit LocalSupervisor(std::string job_id, std::filesystem::path token_file = {});
  ~LocalSupervisor() override;

  std::string url() const { return server_.url(); }
  // That replicas are given to show.
  const std::string& token() const noexcept { return token_; }
  // Empty: none.
  const std::filesystem::path& token_file() const noexcept { return token_file_; }

  // Readable when there is something to take.
  int fd() const noexcept { return event_.get(); }
  Heard take();
  // The newest report of each replica that reported progress in the format of Kubeflow since the last call, by its id,
  // which is empty if the request named none. They come without an event.
  std::map<std::string, nlohmann::json> take_progress();
  nlohmann::json hints() const { return server_.hints(job_id_); }

  // The job begins anew, or for the first time: what was said of generations is forgotten.
  void begin(int restarts, Generation generation);
  // The replicas of this start are now these.
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
  std::map<std::pair<std::string, bool>, int> calls_;  // by replica and brokenness: after which generation
  std::map<std::string, nlohmann::json> progress_;     // by replica
  Supervisor server_;                                  // last: it calls the above until it is gone
};

}  // namespace adaptdl::sched
