// Generations: changes to a job's replicas while the job is running.
//
// A generation is an ordered list of replicas; a rank is a position in it. The supervisor announces generations
// (protocol: docs/formats.md). A replica that is in the next generation leaves its group at a step boundary and forms a
// new group with the other members. A replica that is not in it exits. A newcomer, which is a replica that was not in
// the previous generation, starts while the other replicas are still training. A member sends it, over the network, the
// states that a checkpoint would contain, and the newcomer continues training from these states.
//
// If a member dies, the group breaks: the collective calls of the other members fail. They request the next generation,
// form its group, and compare their progress. A member that has missed a change to a state receives that state from
// another member.
//
// This module coordinates the supervisor, the collective and the states; the trainer calls it at step boundaries.
//
// Threading: only the training thread may call these functions.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace adaptdl::generation {

// A replica in a generation.
struct Member {
  std::string id;          // ADAPTDL_REPLICA_ID
  std::string address;     // address at which it can be reached
  std::uint16_t port = 0;  // port on which it listens if its rank is 0
};

// The list of a job's replicas from one change to the next.
struct Generation {
  int number = 0;                // later generations have higher numbers
  std::vector<Member> replicas;  // by rank

  // Returns the rank of the replica with that id, or nullopt if it is not a member.
  std::optional<int> rank_of(const std::string& id) const;
  // Returns whether this process is a member.
  bool has_me() const;

  // Returns the JSON that the supervisor sends: {"generation", "replicas": [{"id", "address", "port"}]}.
  nlohmann::json to_json() const;
  // Parses that JSON. Throws nlohmann::json::exception if it is invalid or has no replicas.
  static Generation from_json(const nlohmann::json& object);
};

// Returns whether this replica follows generations. A replica follows generations if it has a supervisor, a job and an
// id, and has not declined.
bool follows() noexcept;
// Stops following generations, for the reason `why`: from now on, the job is rescaled through checkpoints. Rank 0
// reports this to the supervisor. If this process is a newcomer, it cannot join the job: it reports this to the
// launcher or, in a cluster, to the supervisor, and throws Error.
void decline(const std::string& why);

// Reports to the supervisor whether this replica follows generations, without waiting for the answer. Must be called on
// rank 0 after the group has connected.
void announce();

// Returns the number of the generation that this replica is in or is joining.
int current() noexcept;

// Returns the address of rank 0 in the current generation; empty in the group that was connected at the start.
const std::string& host() noexcept;

// Returns the newest generation that was announced after the current one, or nullopt. The first call starts a thread
// that queries the supervisor, so only one replica should call this function and inform the others. Never blocks.
std::optional<Generation> announced();

// Reports that the group is broken and waits for the next generation, which might not include this replica. Throws
// Error if the supervisor cannot be reached for 5 minutes, or if its answer is invalid.
Generation await_next();

// The progress of a replica.
struct Progress {
  std::uint64_t boundaries = 0;  // number of step boundaries that it has passed
  // Number of changes so far, by state name, for each state that replicas can change only together. Each replica
  // changes all other states independently, but all replicas change them in the same way.
  std::map<std::string, std::uint64_t> versions;
};

// The result of form() and join().
struct Formation {
  Progress furthest;                 // the progress of the most advanced member
  std::vector<std::string> renewed;  // the states that form() received from the most advanced member
};

// Forms the group of `next`, which replaces the current one: its communicator becomes this process's communicator, and
// env::replica_rank() and env::num_replicas() return the rank and the size of the new group. The most advanced member
// sends all its states to the newcomers, and sends each other member the states that are out of date on that member.
// Returns when all newcomers have joined. REQUIRES that this replica is a member. Throws collective::CollectiveError if
// another member fails during the call, which breaks the new group. Throws collective::MismatchError if this replica is
// in the middle of a step (`in_step`) and the group has members that cannot enter that step: newcomers, or members that
// have passed fewer boundaries.
Formation form(const Generation& next, const Progress& own, bool in_step = false);

// --- Functions for newcomers ---

// Returns whether this process must join a running job and has not done so yet. Until it has joined, it loads its
// states from a member, and its collective calls are refused. The first load waits until the members admit this
// process.
bool joining() noexcept;
// From now on, collective calls invoke decline(). Must be called where a program would otherwise connect its replicas.
void begin_joining();
// Joins the job. This process is then a member like the others, even if their group has failed in the meantime. Must be
// called where a program would otherwise make its first collective call. Throws Error if this process has not loaded
// any state yet.
Formation join();
// Waits until the other newcomers have also joined. Throws collective::CollectiveError if the group fails while it
// waits.
void await_others();

}  // namespace adaptdl::generation
