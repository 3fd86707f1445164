// What a RemoteHost and its ReplicaServers send to each other, as JSON objects. Both are of the same version.
//
// To a server: {"do": "plan", "plan": ...} first, then
//   {"do": "begin"}                                 all replicas are about to be started (ReplicaHost::begin)
//   {"do": "start", "number": N, "place": ...}
//   {"do": "stop" | "save", "number": N}
//   {"do": "kill", "number": N, "hung": BOOL}
//   {"do": "kill_all"}
//   {"do": "port"}                                  asks for another free port
// From a server, after {"is": "port", "port": P}:
//   {"is": "refused", "number": N, "why": TEXT}     the replica could not be started
//   {"is": "output", "number": N, "error": BOOL, "ends": BOOL, "text": TEXT}, or "base64" in place of "text"
//   {"is": "report", "number": N, "report": OBJECT}
//   {"is": "handles", "number": N, "stop": BOOL, "save": BOOL, "starting": BOOL}      if one of these has changed
//   {"is": "ended", "number": N, "end": ...}        its output up to there was sent before
//   {"is": "gone", "number": N}                     the last message about this replica
//   {"is": "port", "port": P}
// A server whose channel is closed kills its replicas and ends.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "local/launch_plan.h"
#include "local/outcome.h"
#include "local/replica_environment.h"

namespace adaptdl::sched {

// The parts of a plan that a node needs in order to start replicas: all of them have the same meaning on each node.
nlohmann::json node_plan_to_json(const LaunchPlan& plan);
LaunchPlan node_plan_from_json(const nlohmann::json& plan);

nlohmann::json place_to_json(const ReplicaPlace& place);
ReplicaPlace place_from_json(const nlohmann::json& place);

// Without the last lines and the place in the order of ends.
nlohmann::json end_to_json(const ReplicaEnd& end);
ReplicaEnd end_from_json(const nlohmann::json& end);

// Adds the text to a message; it need not be UTF-8.
void put_text(nlohmann::json& message, std::string_view text);
std::string get_text(const nlohmann::json& message);

}  // namespace adaptdl::sched
