// Asking a run that goes on, through its control socket.
//
// Threading: the functions keep no state and may be called from any thread.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "local/fd.h"
#include "local/run_record.h"

namespace adaptdl::sched {

// Sends the request and waits for its answer, for as long as the launcher takes, or at most `limit`. Returns what
// RunControl answers, without "ok". Throws Error with the launcher's reason if it refuses, and if it cannot be reached.
nlohmann::json ask_run(const RunEntry& run, const nlohmann::json& request,
                       std::optional<std::chrono::milliseconds> limit = {});

// A request whose answer the caller does not wait for.
class PendingRequest {
 public:
  // Sends it. Throws Error if the run cannot be reached.
  PendingRequest(const RunEntry& run, const nlohmann::json& request);
  // What RunControl answered, without "ok"; none: it has not answered yet. Does not block. Throws Error with the
  // launcher's reason if it refused, and if it ended without an answer. REQUIRES that it has not answered before.
  std::optional<nlohmann::json> answer();

 private:
  std::string name_;  // of the run
  Fd connection_;
  std::string text_;
};

// How the run is getting on at this moment; what its record says, if it has ended or does not answer within a second.
RunStatus status_now(const RunEntry& run);

// Waits until the launcher is gone, however that came.
void wait_for_end(const RunEntry& run);

}  // namespace adaptdl::sched
