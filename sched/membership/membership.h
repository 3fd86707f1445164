// Which replicas a job has, and how that changes while it runs: a state machine without processes, pods, sockets or a
// clock, over one start of the job. The launcher of a machine and the operator of a cluster use it; to them, a device
// is a GPU of the machine and a node of the cluster.
//
// A generation is an ordered list of members; a member's place in it is its rank. Planned changes: newcomers are
// started and load while the members train on; the next generation lists them last, once they wait for it. Leavers are
// no longer listed and end by themselves. Failures: the members that a death leaves go on in the next generation at
// once if they are enough, and otherwise once replacements have come. A program that cannot follow generations is
// stopped with a checkpoint instead, to be started again on the new number. What counts as a failure and what does not:
// FailureBudget is asked for those alone that have another cause than a SIGKILL.
//
// Use: report what happens, then carry out what decide() gives, in its order. Replicas are known by a number that
// counts up from 0 and is never used twice.
//
// Threading: used by one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "membership/back_off.h"
#include "membership/membership_limits.h"

namespace adaptdl::sched {

// What the run should have: a replica on each of these devices (one that stands there twice gets two; an empty name is
// no device in particular). With fewer than `min` members it does not go on.
struct MembershipTarget {
  std::vector<std::string> devices;
  int min = 1;
  bool by_user = false;  // asked for by a user, who is not made to wait for kRestartEvery
};

struct MembershipAction {
  enum class Kind {
    kStart,    // `replica` on `device`, as a newcomer that may join `generation`, presumably with `rank` of `size`
    kIssue,    // `generation`, of `members` by rank
    kKill,     // `replica`, for the reason `why`; as one that hung if `hung`
    kRestart,  // all: stop them with a checkpoint and start again on the target. Given again until stop() is called
    kFail,     // the run cannot go on, because of `why`
    kNotice,   // tell the user `why`
  };
  Kind kind = Kind::kNotice;
  int replica = -1;
  int generation = 0;
  int rank = 0;
  int size = 0;
  std::string device;
  std::vector<int> members;
  bool hung = false;
  std::string why;
};

// How many failures a job survives, and how long it waits after each.
class FailureBudget {
 public:
  using Time = BackOff::Time;
  virtual ~FailureBudget() = default;

  // Counts a failure. Returns false, and counts nothing, if there were too many already.
  virtual bool spend() = 0;
  // Returns how long to wait before anything is started after a failure now, counted or not.
  virtual std::chrono::milliseconds back_off(Time now) = 0;
};

// What a Membership knows of its replicas, which is all that has to be kept to continue it elsewhere. Times are the
// caller's.
struct MembershipState {
  using Time = FailureBudget::Time;
  enum class Role { kLoading, kWaiting, kMember, kLeaving };
  struct Replica {
    int number = 0;
    std::string device;
    Role role = Role::kLoading;
    Time started{};                // of a newcomer
    int trains = -1;               // the newest generation that it said it trains in
    bool trained = false;          // in any; those that start the job together are taken to
    bool broken = false;           // it said that the present generation is
    bool killed = false;           // an action killed it
    bool late = false;             // because it did not get ready in time
    std::optional<Time> leave_by;  // of a leaver, once the others have left it

    bool operator==(const Replica&) const = default;
  };

  int generation = 0;
  int next = 0;                   // number of the next replica that is started
  std::vector<Replica> replicas;  // the members by rank, among the others
  std::optional<Time> broken_since;
  std::optional<Time> finished_at;  // a member was done, or the last one that had trained stopped
  bool regroup = false;             // the present generation is lost
  bool incomplete = false;          // a member of it is gone
  bool can_join = true;
  Time start_after{};  // no newcomer is started before, because of a failure
  int newcomer_failures = 0;
  std::string noticed;

  bool operator==(const MembershipState&) const = default;
};

class Membership {
 public:
  using Time = FailureBudget::Time;

  struct Options {
    bool survives = false;                   // the others survive a member's death
    bool can_join = true;                    // replicas can join the program while it runs
    bool can_restart = true;                 // there are checkpoints to start again from
    std::chrono::milliseconds grace{30000};  // for leavers, once the others have left them
    std::chrono::milliseconds hang_wait = kHangWait;
    std::chrono::milliseconds join_limit = kJoinLimit;  // for newcomers to load; the job trains meanwhile
    Time restart_after{};                               // kRestart comes no earlier, unless a user asked
  };
  enum class End { kDone, kCheckpointed, kKilled, kFailed };  // kKilled: by a SIGKILL

  // The members of generation 0 are the replicas 0, 1, ...: one for each device of the target.
  Membership(Options options, MembershipTarget target, FailureBudget& budget);
  // Continues where another one with this target and state was. What the program has reported must be
  // reported again.
  Membership(Options options, MembershipTarget target, FailureBudget& budget, MembershipState state);

  // What should be is now this. A change that is under way is completed or undone as it takes.
  void set_target(MembershipTarget target);
  // The program said whether it can follow generations.
  void set_follows(bool follows) noexcept { follows_ = follows; }
  // A member reported progress, from which it is known to have started.
  void progressed(Time now);
  // A newcomer is ready to join.
  void waits(int replica, Time now);
  // A member's group of this generation broke.
  void broken(int replica, int generation, Time now);
  // A member trains in this generation.
  void trains(int replica, int generation);
  // A newcomer found that its program cannot be joined.
  void cannot_join(int replica);
  // A replica is gone. Returns whether the run goes on without it; if not, this is the end of all: a member was done,
  // was stopped, or failed and cannot be survived.
  bool ended(int replica, End end, Time now);
  // The run is ending: newcomers go, and nothing new is planned. Members that have lost others, or lose them from now
  // on, get a generation to save a checkpoint in.
  void stop() noexcept { stopping_ = true; }
  // All replicas are about to be killed, so nothing is planned for those that are left.
  void give_up() noexcept { stopping_ = given_up_ = true; }

  std::vector<MembershipAction> decide(Time now);

  int generation() const noexcept { return state_.generation; }
  const MembershipState& state() const noexcept { return state_; }
  // By rank.
  std::vector<int> members() const;
  std::vector<std::string> devices() const;
  bool is_member(int replica) const;
  // Whether it was started to join and has not been listed yet.
  bool is_newcomer(int replica) const;
  bool can_join() const noexcept { return state_.can_join; }
  const MembershipTarget& target() const noexcept { return target_; }
  // Whether the members are those that should be, and all train together.
  bool steady() const;
  // Whether the work is done, so that the members end and no others come.
  bool finishing() const noexcept { return state_.finished_at.has_value(); }
  // Whether members that are to leave must wait for newcomers, because too few would be left.
  bool leavers_wait() const;
  // Whether the others can save a checkpoint if this member is killed, of whose death the run ends.
  bool can_save_without(int replica) const;
  // Whether there is no way to get other members than there are.
  bool is_stuck(Time now) const;

 private:
  using Role = MembershipState::Role;
  using Replica = MembershipState::Replica;
  // What the target asks for and the members are not.
  struct Difference {
    std::vector<int> leavers;
    std::vector<std::string> missing;   // devices without a member
    std::vector<std::string> to_start;  // those of them without a newcomer
    std::vector<int> surplus;           // newcomers that have no device in the target any more
  };

  Replica* find(int replica);
  const Replica* find(int replica) const;
  // Those that were killed are no newcomers any more, but members until they are gone.
  std::size_t count(Role role) const;
  bool settled() const;
  bool a_member_has_trained() const;
  bool a_member_dies() const;
  Difference difference() const;
  bool known_not_to_follow(Time now) const;

  bool member_ended(const Replica& gone, End end, Time now);
  void newcomer_failed(Time now);
  void take_leave(Time now);
  void kill_hung(Time now);
  void finish(Time now);
  void regroup(Time now);
  void plan(Time now);
  void plan_live(const Difference& difference, Time now);
  void plan_restart(Time now);
  // Returns whether none is loading any more.
  bool bring_newcomers(const Difference& difference, std::size_t staying, Time now);
  void issue(const std::vector<int>& leavers, bool with_newcomers, const std::string& why);
  void kill(Replica& replica, const std::string& why, bool hung = false);
  void notice_once(const std::string& text);

  Options options_;
  MembershipTarget target_;
  FailureBudget* budget_;
  std::optional<bool> follows_;
  std::optional<Time> began_at_;  // the first decision
  std::optional<Time> progressed_at_;
  bool stopping_ = false;
  bool given_up_ = false;
  MembershipState state_;
  std::vector<MembershipAction> actions_;
};

}  // namespace adaptdl::sched
