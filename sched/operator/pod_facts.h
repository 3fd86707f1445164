// What the operator has to know of a pod of a job: which replica it is, where, and how it ended.
//
// An end counts as the job's failure or it does not. It does not if something other than the program ended it (an
// eviction, a preemption, a node that refused it or is gone, a deletion), or if the program exited with 143, which
// says that it saved a checkpoint on request.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "kube/timestamp.h"

namespace adaptdl::sched {

enum class PodEnd {
  kNone,          // it has not ended
  kSucceeded,     // every container exited with 0
  kCheckpointed,  // exited with 143
  kLost,          // something else ended it
  kFailed,        // the program failed
};

// What keeps a pod from running.
enum class PodTrouble { kNone, kUnscheduled, kImage, kContainer, kVolume };

struct PodFacts {
  std::string name, uid, node, ip;
  int group = -1, rank = -1;  // -1: it does not say
  std::string token;          // its job's, from its environment
  bool leaving = false;       // its deletion was requested
  bool running = false;       // all its containers run
  PodEnd end = PodEnd::kNone;
  std::string reason;  // of kFailed: PodFailure or OOMKilled
  std::optional<kube::Time> ended;
  PodTrouble trouble = PodTrouble::kNone;
  std::string message;  // how it ended, or the trouble, in words

  // It runs, or may still run.
  bool live() const { return end == PodEnd::kNone; }
};

PodFacts parse_pod(const nlohmann::json& pod);

}  // namespace adaptdl::sched
