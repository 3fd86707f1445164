// ReplicaSet runs the replicas of one start, and carries out the decisions of Membership.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "local/launch/launch_context.h"
#include "local/replica/replica.h"
#include "membership/membership.h"

namespace adaptdl::sched {

class ReplicaSet {
 public:
  // Starts the replicas of generation 0. `on_report` is called with each JSON object that a replica writes to its
  // status descriptor. Throws the same errors as ReplicaHost::start(); no replica is left in that case.
  ReplicaSet(LaunchContext& context, int restarts, Replica::OnReport on_report);

  // Returns the replicas that are not gone, and the gone replicas whose end also ends the run.
  const std::vector<std::unique_ptr<Replica>>& all() const noexcept { return replicas_; }
  bool all_gone() const;
  // Returns whether `replica` has the lowest rank in the set, and therefore reports on behalf of the other replicas.
  bool is_first(const Replica& replica) const;
  // Returns whether any replica has reported training progress.
  bool trained() const noexcept { return trained_; }

  // The action that tick() requests from the Attempt.
  struct Wish {
    enum class Kind { kNone, kRestart, kFail };
    Kind kind = Kind::kNone;
    std::string why;
  };
  // Handles the replicas' reports, and changes the membership as needed. Must be called at short intervals until all
  // replicas are about to be killed.
  Wish tick();
  // Handles the requests and hints that replicas sent to the supervisor. tick() also calls this function.
  void receive();
  // Forwards the progress that replicas reported in Kubeflow's format, unless they report progress on the status
  // descriptor. Must be called at short intervals and, after a replica has ended, before survives().
  void take_progress();
  // Applies a change of the run's size. If the change cannot have any effect, returns the reason.
  std::optional<std::string> resize();
  // Reports the end of a replica to the membership. Returns whether the run continues without the replica.
  bool survives(const ReplicaEnd& end);
  // If the run ends because this replica was killed, returns whether the other replicas can save a checkpoint first.
  bool can_save_without(const ReplicaEnd& end) const;
  // Removes the gone replicas whose end the run survived.
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
  // Reports which devices are in use or about to be used: those of the living replicas and those in `starting`.
  void say_devices(const std::vector<std::string>& starting);
  void take_report(const Replica& replica, const nlohmann::json& report);
  Replica* find(int number) const;
  std::string id(int number) const;
  // Returns the number of this start's replica with this id, or nullopt if there is none.
  std::optional<int> number_of(const std::string& id) const;
  Generation generation() const;
  // Chooses the host and port on which rank 0 of the current generation listens. Throws Error if no port is free.
  void choose_master();

  LaunchContext& context_;
  int restarts_;
  Replica::OnReport on_report_;
  Membership membership_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::string master_host_;  // host on which rank 0 of the current generation listens
  std::uint16_t master_port_ = 0;
  std::set<int> survived_;              // replicas whose end the run survived
  std::map<int, std::string> devices_;  // by replica number, for all replicas that were started
  bool trained_ = false;
  bool reports_itself_ = false;  // replicas report progress on the status descriptor
  bool stopping_ = false;
};

}  // namespace adaptdl::sched
