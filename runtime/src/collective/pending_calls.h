// The calls that are not complete: each replica's values for the current call and, from replicas that are ahead, for
// later calls. Rank 0 reduces the values of a call when it has one from every replica.
//
// Threading: the root's mutex guards the object; it is held while reducing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "collective/engine.h"

namespace adaptdl::collective {

class PendingCalls {
 public:
  using TimePoint = net::Clock::time_point;

  // A replica's contribution to one call.
  struct Part {
    wire::Kind kind;
    bool failed;
    Bytes value;  // the reason if `failed`
    std::string purpose;
    TimePoint arrived;

    bool is_of_call(const Part& other) const { return kind == other.kind && purpose == other.purpose; }
  };

  // `options` must outlive the object.
  explicit PendingCalls(const Options& options);

  void add(int rank, Part part);

  // Returns whether every replica has a part in the current call.
  bool ready() const noexcept { return missing_ == 0; }
  // Returns how the replicas' calls differ, or "" if they agree. REQUIRES ready().
  std::string mismatch_text() const;
  // Ends the current call and returns its result: a frame of type kValue or kFailed. REQUIRES ready().
  wire::Frame complete(const Reduce& reduce);

  // Returns the number of calls that the replica has made so far.
  std::uint64_t calls(int rank) const { return replicas_[static_cast<std::size_t>(rank)].calls; }
  // Returns whether the replica is so far ahead that it must wait.
  bool too_far_ahead(int rank) const;
  // Returns when the first part of the current call arrived, or nullopt if no replica has made the call yet.
  std::optional<TimePoint> first_arrival() const;
  // Returns the replicas that have no part in the current call.
  std::vector<int> missing_ranks() const;
  // Describes the current call's progress, for example "during allreduce #15".
  std::string when() const;

 private:
  struct Replica {
    std::deque<Part> parts;
    std::size_t part_bytes = 0;
    std::uint64_t calls = 0;
  };

  wire::Frame combine(wire::Kind kind, const Reduce& reduce);
  Bytes reduce_parts(const Reduce& reduce);

  const Options& options_;
  std::vector<Replica> replicas_;
  std::size_t missing_;          // number of replicas without a part in the current call
  std::uint64_t completed_ = 0;  // number of completed calls
};

}  // namespace adaptdl::collective
