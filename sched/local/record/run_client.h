// Sends requests to an active run through its control socket.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/fd.h"
#include "local/record/run_record.h"

namespace adaptdl::sched {

// Sends the request and waits for the answer for as long as the launcher needs, but no longer than `limit`. Returns
// RunControl's answer without "ok". Throws Error if the launcher cannot be reached or, with the launcher's reason, if
// the launcher refuses the request.
nlohmann::json ask_run(const RunEntry& run, const nlohmann::json& request,
                       std::optional<std::chrono::milliseconds> limit = {});

// A request whose answer the caller does not wait for.
class PendingRequest {
 public:
  // Sends the request. Throws Error if the run cannot be reached.
  PendingRequest(const RunEntry& run, const nlohmann::json& request);
  // Returns RunControl's answer without "ok", or nullopt if there is no answer yet. Does not block. Throws Error if the
  // launcher ended without an answer or, with the launcher's reason, if it refused. REQUIRES that no answer has been
  // returned yet.
  std::optional<nlohmann::json> answer();

 private:
  std::string name_;  // the run's name
  Fd connection_;
  std::string text_;
};

// Returns the current status of the run, or the status in its record if the run has ended or does not answer within a
// second.
RunStatus status_now(const RunEntry& run);

// Waits until the launcher has ended, for whatever reason.
void wait_for_end(const RunEntry& run);

}  // namespace adaptdl::sched
