// The replicas of one start as processes: what Membership decides, carried out.
//
// Threading: the launcher's thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "local/exit_order.h"
#include "local/launch_context.h"
#include "local/local_replica.h"
#include "local/replica_environment.h"
#include "membership/membership.h"

namespace adaptdl::sched {

class ReplicaSet {
 public:
  // Starts the replicas of generation 0. `on_report` gets each object that one of them writes to its status descriptor.
  // Throws as LocalReplica does; none is left then.
  ReplicaSet(LaunchContext& context, int restarts, LocalReplica::OnReport on_report);

  // Those whose processes or what these had started are not all gone, and the gone whose end was the run's.
  const std::vector<std::unique_ptr<LocalReplica>>& all() const noexcept { return replicas_; }
  bool all_gone() const;
  // Whether it is the one of the lowest rank here, that speaks for the others.
  bool is_first(const LocalReplica& replica) const;
  std::size_t place_of_exit(const LocalReplica& replica) { return exit_order_.place(replica.pid()); }
  // Whether any of them trained, as far as they say.
  bool trained() const noexcept { return trained_; }

  // What is left to the run's attempt to do.
  struct Wish {
    enum class Kind { kNone, kRestart, kFail };
    Kind kind = Kind::kNone;
    std::string why;
  };
  // Hears the replicas and changes the membership as it takes. To be called in short intervals until all are to be
  // killed.
  Wish tick();
  // Takes what replicas asked the supervisor and posted to it. tick() does so too.
  void hear();
  // Passes on the progress that replicas reported in the format of Kubeflow, unless they report progress on the status
  // descriptor. To be called in short intervals, and between the end of a replica and survives().
  void take_progress();
  // The context's size is another. Returns why nothing can come of it, if so.
  std::optional<std::string> resize();
  // Whether the run goes on without the replica that ended so.
  bool survives(const ReplicaEnd& end);
  // Whether it ends with this one, which was killed, but the others can save a checkpoint.
  bool can_save_without(const ReplicaEnd& end) const;
  // Forgets the ends of those that the run goes on without, once they are gone.
  void clear();
  // The run is ending: all replicas must save a checkpoint.
  void stop();
  // They are about to be killed, by a failure or because they did not end in time.
  void give_up();

  const Membership& membership() const noexcept { return membership_; }

 private:
  static Membership::Options options(const LaunchContext& context);
  void start(int number, int generation, int rank, int size, const std::string& device);
  void start_newcomer(const MembershipAction& action);
  void issue(const MembershipAction& action);
  void kill(const MembershipAction& action);
  // Says which devices are in use, or are about to be.
  void say_devices(const std::vector<std::string>& starting);
  void take_report(const LocalReplica& replica, const nlohmann::json& report);
  LocalReplica* find(int number) const;
  std::string id(int number) const;
  // Of a replica of this start.
  std::optional<int> number_of(const std::string& id) const;
  Generation generation() const;

  LaunchContext& context_;
  int restarts_;
  LocalReplica::OnReport on_report_;
  const Environment caller_ = caller_environment();
  const unsigned cores_ = usable_cores();
  Membership membership_;
  ExitOrder exit_order_;
  std::vector<std::unique_ptr<LocalReplica>> replicas_;
  std::uint16_t port_ = 0;              // where rank 0 of the present generation listens
  std::set<int> survived_;              // whose ends are of no account
  std::map<int, std::string> devices_;  // of all that were started
  bool trained_ = false;
  bool reports_itself_ = false;  // on the status descriptor
  bool stopping_ = false;
};

}  // namespace adaptdl::sched
