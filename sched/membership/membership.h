// Membership decides which replicas a job has, and how they change while the job runs. It is a state machine for one
// start of the job, without processes, pods, sockets or a clock. It is used by the local launcher, for which a device
// is a GPU, and by the cluster's operator, for which a device is a node.
//
// A generation is an ordered list of members; a member's position in the list is its rank. Planned changes: new
// replicas, called newcomers until a generation lists them, start and load while the members continue to train. Once
// the newcomers are waiting for the next generation, that generation lists them last. A leaver is a member that the
// next generation does not list; it exits on its own. Failures: the members that survive a death continue in the next
// generation, immediately if there are enough of them, or else once replacements have joined. A member that hangs is
// killed; if it does not end within kKillWait, the others continue without it. A program that cannot follow generations
// is instead stopped with a checkpoint and started again with the new number of replicas. A death by SIGKILL is not
// counted against the FailureBudget.
//
// To use it, report what happens, and then carry out the actions that decide() returns, in order. Replicas are
// identified by numbers, which count up from 0 and are never reused.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "membership/back_off.h"
#include "membership/membership_limits.h"
#include "membership/membership_state.h"

namespace adaptdl::sched {

struct MembershipAction {
  enum class Kind {
    kStart,    // start `replica` on `device` as a newcomer that may join `generation`, presumably as `rank` of `size`
    kIssue,    // issue `generation`, which consists of `members`, ordered by rank
    kKill,     // kill `replica` for the reason `why`; `hung` is true if the replica hung
    kGiveUp,   // show `why` to the user: `replica` did not end after SIGKILL, and the others continue without it
    kRestart,  // stop all replicas with a checkpoint, and start again on the target; repeated until stop()
    kFail,     // end the run, which cannot continue for the reason `why`
    kNotice,   // show `why` to the user
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

// A FailureBudget decides how many failures a job survives, and how long the job waits after each failure.
class FailureBudget {
 public:
  using Time = BackOff::Time;
  virtual ~FailureBudget() = default;

  // Counts a failure. If the budget is already used up, counts nothing and returns false.
  virtual bool spend() = 0;
  // Returns how long to wait, after a failure at `now` (counted or not), before anything is started.
  virtual std::chrono::milliseconds back_off(Time now) = 0;
};

class Membership {
 public:
  using Time = FailureBudget::Time;

  struct Options {
    bool survives = false;                   // whether the others survive a member's death
    bool can_join = true;                    // whether replicas can join the program while it runs
    bool can_restart = true;                 // whether the program can restart from checkpoints
    std::chrono::milliseconds grace{30000};  // time for leavers to end once the others are training without them
    std::chrono::milliseconds hang_wait = kHangWait;
    std::chrono::milliseconds join_limit = kJoinLimit;  // time for newcomers to load while the job is training
    Time restart_after{};                               // earliest time of a kRestart that no user requested
  };
  enum class End { kDone, kCheckpointed, kKilled, kFailed };  // kKilled: by a SIGKILL

  // Begins with generation 0, whose members are replicas 0, 1, ..., one for each device in the target.
  Membership(Options options, MembershipTarget target, FailureBudget& budget);
  // Continues from the state of another Membership with the same target. The caller must repeat the program's reports.
  Membership(Options options, MembershipTarget target, FailureBudget& budget, MembershipState state);

  // Changes the target. A change in progress is completed or undone as needed.
  void set_target(MembershipTarget target);
  // Reports whether the program can follow generations.
  void set_follows(bool follows) noexcept { follows_ = follows; }
  // Reports that a member made progress, which shows that the program has started.
  void progressed(Time now);
  // Reports that a newcomer is ready to join.
  void waits(int replica, Time now);
  // Reports that a member's group broke in `generation`.
  void broken(int replica, int generation, Time now);
  // Reports that a member is training in `generation`.
  void trains(int replica, int generation);
  // Reports that a newcomer has found that replicas cannot join its program.
  void cannot_join(int replica);
  // Reports that a replica has ended. Returns whether the run continues without it. If not, the whole run ends, because
  // the member finished, was stopped, or failed in a way that the others cannot survive.
  bool ended(int replica, End end, Time now);
  // Reports that the run is ending: newcomers are killed, and nothing new is planned. Members that have lost other
  // members, or lose them from now on, get a generation in which to save a checkpoint.
  void stop() noexcept { stopping_ = true; }
  // Reports that all replicas are about to be killed, so that nothing is planned for the remaining ones.
  void give_up() noexcept { stopping_ = given_up_ = true; }

  std::vector<MembershipAction> decide(Time now);

  int generation() const noexcept { return state_.generation; }
  const MembershipState& state() const noexcept { return state_; }
  // Both lists are ordered by rank.
  std::vector<int> members() const { return state_.members(); }
  std::vector<std::string> devices() const { return state_.devices(); }
  bool is_member(int replica) const { return state_.is_member(replica); }
  // Returns whether the replica was started as a newcomer and is not yet a member of a generation.
  bool is_newcomer(int replica) const { return state_.is_newcomer(replica); }
  bool can_join() const noexcept { return state_.can_join; }
  const MembershipTarget& target() const noexcept { return target_; }
  // Returns whether the members match the target and are all training together.
  bool steady() const;
  // Returns whether the work is done: the members are ending, and no replicas are started.
  bool finishing() const noexcept { return state_.finished_at.has_value(); }
  // Returns whether members that should leave must wait for newcomers, because too few would be left.
  bool leavers_wait() const;
  // Returns whether the run would end if this member were killed, but the others could save a checkpoint first.
  bool can_save_without(int replica) const;
  // Returns whether the members can no longer be changed.
  bool is_stuck(Time now) const;

 private:
  using Role = MembershipState::Role;
  using Replica = MembershipState::Replica;

  bool known_not_to_follow(Time now) const;

  bool member_ended(const Replica& gone, End end, Time now);
  void newcomer_failed(Time now);
  // The following functions, and decide(), are defined in membership_decide.cc.
  void take_leave(Time now);
  void kill_hung(Time now);
  void give_up_hung(Time now);
  void finish(Time now);
  void regroup(Time now);
  void plan(Time now);
  void plan_live(const MembershipDifference& difference, Time now);
  void plan_restart(Time now);
  // Starts and kills newcomers as needed. Returns whether no newcomer is still loading.
  bool bring_newcomers(const MembershipDifference& difference, std::size_t staying, Time now);
  void issue(const std::vector<int>& leavers, bool with_newcomers, const std::string& why);
  void kill(Replica& replica, const std::string& why, bool hung = false);
  void notice_once(const std::string& text);

  Options options_;
  MembershipTarget target_;
  FailureBudget* budget_;
  std::optional<bool> follows_;
  std::optional<Time> began_at_;  // time of the first decision
  std::optional<Time> progressed_at_;
  bool stopping_ = false;
  bool given_up_ = false;
  MembershipState state_;
  std::vector<MembershipAction> actions_;
};

}  // namespace adaptdl::sched
