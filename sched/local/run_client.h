// Asking a run that goes on, through its control socket.
//
// Threading: the functions keep no state and may be called from any thread.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "local/run_record.h"

namespace adaptdl::sched {

// Sends the request and waits for its answer, for as long as the launcher takes, or at most `limit`. Returns what
// RunControl answers, without "ok". Throws Error with the launcher's reason if it refuses, and if it cannot be reached.
nlohmann::json ask_run(const RunEntry& run, const nlohmann::json& request,
                       std::optional<std::chrono::milliseconds> limit = {});

// How the run is getting on at this moment; what its record says, if it has ended or does not answer within a second.
RunStatus status_now(const RunEntry& run);

// Waits until the launcher is gone, however that came.
void wait_for_end(const RunEntry& run);

}  // namespace adaptdl::sched
