// Following a job through its generations: how its replicas change while it runs.
//
// A generation is an ordered list of replicas; a rank is a place in it. The supervisor announces generations (protocol:
// docs/formats.md). A replica that is in the next one leaves its group at a step boundary and forms a new one with the
// others; one that is not in it any more ends; a newcomer, started while the others still train, gets the states of one
// of them over the network, the same that a checkpoint holds, and goes on where they are.
//
// When a member dies, the group of the others breaks: their collective calls fail. They ask for the next generation,
// form its group, and compare how far each has come: whoever lacks what another one finished gets that state from it.
//
// This part knows the supervisor, the collective and the states; the trainer knows what a step is, and calls it there.
//
// Threading: used by the training thread, but for what says otherwise.
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
  std::string address;     // where it can be reached
  std::uint16_t port = 0;  // on which it listens if its rank is 0
};

// The replicas of a job between two changes of them.
struct Generation {
  int number = 0;                // later generations have higher numbers
  std::vector<Member> replicas;  // by rank

  // The rank of the replica with that id; none if it is not a member.
  std::optional<int> rank_of(const std::string& id) const;
  // Whether this process is one.
  bool has_me() const;

  // As the supervisor sends it: {"generation", "replicas": [{"id", "address", "port"}]}.
  nlohmann::json to_json() const;
  // Throws nlohmann::json::exception, also if it has no replicas.
  static Generation from_json(const nlohmann::json& object);
};

// Whether this replica can follow generations: it has a supervisor, a job and an id, and did not decline.
bool follows() noexcept;
// From now on it cannot, for this reason: the job is rescaled by checkpoints. Says so to the supervisor with the next
// hints. Throws Error in a newcomer, which is of no use then, after telling the launcher.
void decline(const std::string& why);

// Tells the supervisor whether this replica follows generations, without waiting for it. To be called on rank 0 when its
// group is connected.
void announce();

// The number of the generation that this replica is in, or joins.
int current() noexcept;

// Where rank 0 of the present generation can be reached.
const std::string& host() noexcept;

// The newest generation that was announced after the present one; none so far. From the first call on a thread of its
// own asks for it; of use on one replica, which tells the others. Never blocks.
std::optional<Generation> announced();

// Says that the group is broken, and waits for the next generation, in which this replica may not be. Throws Error if the
// supervisor cannot be reached for five minutes.
Generation await_next();

// How far a replica has come.
struct Progress {
  std::uint64_t boundaries = 0;  // step boundaries that it has passed
  // Of the states that replicas can only change together, by name: how often each was changed. All others each replica
  // changes by itself, in the same way.
  std::map<std::string, std::uint64_t> versions;
};

// The result of form() and join().
struct Formation {
  Progress furthest;                 // of the member that is furthest
  std::vector<std::string> renewed;  // the states that this replica got from that one
};

// Forms the group of `next` in place of the present one, of which nothing is left then: the process's communicator is
// the new one, env::replica_rank() and env::num_replicas() are those in it. The member that is furthest sends its
// states to the newcomers, and to the others those of which they have older versions. Returns when all newcomers have
// joined. REQUIRES that this replica is a member. Throws collective::CollectiveError if another member fails meanwhile:
// then the group is broken again. Throws collective::MismatchError if this replica is in the middle of a step that
// others cannot enter: newcomers, and those that have passed fewer boundaries.
Formation form(const Generation& next, const Progress& own, bool in_step = false);

// --- Of a newcomer ---

// Whether this process is to join a running job and has not done so yet. Its states then load from a member's: the
// first load waits until the members take it in. Its collective calls are refused until it has joined.
bool joining() noexcept;
// Refuses collective calls from now on, by declining. To be called where a program would connect its replicas.
void begin_joining();
// Joins: from here on it is a member like the others, even if their group has failed meanwhile. To be called where it
// would make its first collective call.
Formation join();
// Waits until the other newcomers have joined, too. Throws collective::CollectiveError if the group fails meanwhile.
void await_others();

}  // namespace adaptdl::generation
