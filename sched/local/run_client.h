// Sends requests to an active run through its control socket.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "local/fd.h"
#include "local/run_record.h"

namespace adaptdl::sched {

// Sends the request and waits for its answer for as long as the launcher needs, or at most `limit`. Returns the answer
// of RunControl without "ok". Throws Error with the launcher's reason if it refuses, and if it cannot be reached.
nlohmann::json ask_run(const RunEntry& run, const nlohmann::json& request,
                       std::optional<std::chrono::milliseconds> limit = {});

// A request whose answer the caller does not wait for.
class PendingRequest {
 public:
  // Sends it. Throws Error if the run cannot be reached.
  PendingRequest(const RunEntry& run, const nlohmann::json& request);
  // Returns the answer of RunControl without "ok", or none if there is none yet. Does not block. Throws Error with the
  // launcher's reason if it refused, and if it ended without an answer. REQUIRES that no answer was returned before.
  std::optional<nlohmann::json> answer();

 private:
  std::string name_;  // of the run
  Fd connection_;
  std::string text_;
};

// Returns the current status of the run, or the one in its record if it has ended or does not answer within a second.
RunStatus status_now(const RunEntry& run);

// Waits until the launcher is gone, however it ended.
void wait_for_end(const RunEntry& run);

}  // namespace adaptdl::sched
