// The supervisor of a run on one machine, and what it hears, for the launcher's loop.
//
// Threading: used by the launcher's thread; what replicas say comes from the server's and is kept until it is taken.
#pragma once

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

  // Starts to serve. Throws Error if the system refuses that.
  explicit LocalSupervisor(std::string job_id);

  std::string url() const { return server_.url(); }
  // That replicas are given to show.
  const std::string& token() const noexcept { return token_; }

  // Readable when there is something to take.
  int fd() const noexcept { return event_.get(); }
  Heard take();
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
  void wake() const;

  std::string job_id_;
  std::string token_;
  Fd event_;
  std::mutex mutex_;
  bool hints_changed_ = false;
  std::map<std::pair<std::string, bool>, int> calls_;  // by replica and brokenness: after which generation
  Supervisor server_;                                  // last: it calls the above until it is gone
};

}  // namespace adaptdl::sched
