// Support for changes to the job's replicas: the users of the process group, and versions of the states that replicas
// can change only together.
//
// Threading: only the training thread may use these classes and functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace adaptdl::internal {

// An object that uses the process group. All users are notified in the order in which they were created, which is the
// same on all replicas.
class GroupUser {
 public:
  GroupUser();
  virtual ~GroupUser();
  GroupUser(const GroupUser&) = delete;
  GroupUser& operator=(const GroupUser&) = delete;

  // Releases the group, which may be broken.
  virtual void leave_group() = 0;
  // Joins the new group. This is a collective call.
  virtual void join_group() = 0;
  // Returns whether the user holds gradients of this replica only, which a later pass will reduce. The result is the
  // same on all replicas.
  virtual bool step_is_unfinished() { return false; }
  // Drops these gradients.
  virtual void drop_unfinished_step() {}
  // Called at each step boundary.
  virtual void begin_step() {}
  // Returns whether the user's optimizer has stepped since the last boundary, as far as can be known. Returns true if
  // there is no optimizer.
  virtual bool has_stepped() const { return true; }
};

// Returns whether any user of the group has an unfinished step. If so, the next batch of the training loop is another
// part of that step, and the boundary before it is skipped.
bool step_is_unfinished();
void drop_unfinished_steps();

void begin_steps();
bool all_have_stepped();

// Makes all users release the process group, and destroys it.
void leave_process_group();
// Creates the process group of the replicas that the collective connects, and lets all users join it. This is a
// collective call. Throws CollectiveError if a replica is lost during the call.
void join_process_group();

// From now on, the loss of a peer does not end a backward pass with an exception: the pass ends without gradients, and
// group_is_broken() returns true.
void tolerate_losses();
// Returns whether a tensor operation of the group has failed since the call of tolerate_losses().
bool group_is_broken();

// Counts how often all replicas together changed a state. If replicas are lost in the middle of such a change, some of
// the remaining replicas may have made the change while others have not. A replica that has not made the change then
// receives the state from one that has.
class Version {
 public:
  // `state`: the name of the checkpoint state, which has one Version.
  explicit Version(std::string state);
  ~Version();
  Version(const Version&) = delete;
  Version& operator=(const Version&) = delete;

  std::uint64_t count = 0;

  static std::map<std::string, std::uint64_t> all();
  static void set_all(const std::map<std::string, std::uint64_t>& counts);

 private:
  std::string state_;
};

}  // namespace adaptdl::internal
