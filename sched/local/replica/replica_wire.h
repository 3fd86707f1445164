// Defines the JSON messages between a RemoteHost and its replica servers. Both sides always have the same version.
//
// To a server: first {"do": "plan", "plan": ...}, then
//   {"do": "begin"}                                 all replicas are about to be started (ReplicaHost::begin)
//   {"do": "start", "number": N, "place": ...}
//   {"do": "stop" | "save", "number": N}
//   {"do": "kill", "number": N, "hung": BOOL}
//   {"do": "kill_all"}
//   {"do": "port"}                                  requests another free port
// From a server: first {"is": "port", "port": P}, then
//   {"is": "refused", "number": N, "why": TEXT}     the replica could not be started
//   {"is": "output", "number": N, "error": BOOL, "ends": BOOL, "text": TEXT}, or "base64" instead of "text"
//   {"is": "report", "number": N, "report": OBJECT}
//   {"is": "handles", "number": N, "stop": BOOL, "save": BOOL, "starting": BOOL}      when one of these has changed
//   {"is": "ended", "number": N, "end": ...}        all complete lines of its output have already been sent
//   {"is": "gone", "number": N}                     the last message about this replica
//   {"is": "port", "port": P}
// When its channel is closed, a server kills its replicas and exits.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "local/base/launch_plan.h"
#include "local/replica/outcome.h"
#include "local/replica/replica_environment.h"

namespace adaptdl::sched {

// Converts the parts of a plan that a node needs in order to start replicas. These parts have the same meaning on every
// node.
nlohmann::json node_plan_to_json(const LaunchPlan& plan);
LaunchPlan node_plan_from_json(const nlohmann::json& plan);

nlohmann::json place_to_json(const ReplicaPlace& place);
ReplicaPlace place_from_json(const nlohmann::json& place);

// The JSON does not contain the fields `last_lines` and `place`.
nlohmann::json end_to_json(const ReplicaEnd& end);
ReplicaEnd end_from_json(const nlohmann::json& end);

// Adds a text to a message. The text need not be UTF-8.
void put_text(nlohmann::json& message, std::string_view text);
std::string get_text(const nlohmann::json& message);

}  // namespace adaptdl::sched
