// ReplicaSet runs the replicas of one start as processes, and carries out what Membership decides.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "local/launch_context.h"
#include "local/replica.h"
#include "membership/membership.h"

namespace adaptdl::sched {

class ReplicaSet {
 public:
  // Starts the replicas of generation 0. `on_report` is called with each object that one of them writes to its status
  // descriptor. Throws as ReplicaHost::start() does; no replica is left then.
  ReplicaSet(LaunchContext& context, int restarts, Replica::OnReport on_report);

  // Returns the replicas that are not gone, and those that are gone but with whose end the run ends, too.
  const std::vector<std::unique_ptr<Replica>>& all() const noexcept { return replicas_; }
  bool all_gone() const;
  // Returns whether it is the replica with the lowest rank here, which reports for the others.
  bool is_first(const Replica& replica) const;
  // Returns whether any replica trained, as far as they report it.
  bool trained() const noexcept { return trained_; }

  // What tick() leaves to the Attempt to do.
  struct Wish {
    enum class Kind { kNone, kRestart, kFail };
    Kind kind = Kind::kNone;
    std::string why;
  };
  // Handles reports of the replicas, and changes the membership as needed. Must be called at short intervals until all
  // replicas are about to be killed.
  Wish tick();
  // Handles what replicas requested from the supervisor and posted to it. tick() calls it, too.
  void hear();
  // Forwards the progress that replicas reported in the format of Kubeflow, unless they report progress on the status
  // descriptor. Must be called at short intervals, and between the end of a replica and survives().
  void take_progress();
  // Applies a change of the context's size. Returns the reason if it can have no effect.
  std::optional<std::string> resize();
  // Reports the end of a replica to the membership. Returns whether the run continues without the replica.
  bool survives(const ReplicaEnd& end);
  // Returns whether the run ends with this replica, which was killed, but the others can save a checkpoint first.
  bool can_save_without(const ReplicaEnd& end) const;
  // Removes the replicas that the run continues without, once they are gone.
  void clear();
  // Reports that the run is ending, and that all replicas must save a checkpoint.
  void stop();
  // Reports that all replicas are about to be killed, because of a failure or because they did not end in time.
  void give_up();

  const Membership& membership() const noexcept { return membership_; }

 private:
  static Membership::Options options(const LaunchContext& context);
  void start(int number, int generation, int rank, int size, const std::string& device);
  void start_newcomer(const MembershipAction& action);
  void issue(const MembershipAction& action);
  void kill(const MembershipAction& action);
  // Reports which devices are in use, or about to be: those of the living replicas and those in `starting`.
  void say_devices(const std::vector<std::string>& starting);
  void take_report(const Replica& replica, const nlohmann::json& report);
  Replica* find(int number) const;
  std::string id(int number) const;
  // Returns the number of a replica of this start, or none if the id is not one's.
  std::optional<int> number_of(const std::string& id) const;
  Generation generation() const;
  // Decides where rank 0 of the current generation listens. Throws Error if no port is free.
  void choose_master();

  LaunchContext& context_;
  int restarts_;
  Replica::OnReport on_report_;
  Membership membership_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::string master_host_;  // where rank 0 of the current generation listens
  std::uint16_t master_port_ = 0;
  std::set<int> survived_;              // replicas whose end the run survived
  std::map<int, std::string> devices_;  // of all replicas that were started
  bool trained_ = false;
  bool reports_itself_ = false;  // replicas report progress on the status descriptor
  bool stopping_ = false;
};

}  // namespace adaptdl::sched
