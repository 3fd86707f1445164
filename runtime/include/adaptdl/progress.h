// Progress of a replica, told to whoever launched it.
//
// When ADAPTDL_STATUS_FD is set, each report is one JSON object on one line written to that descriptor. `adaptdl run`
// shows it in its status line. A report never blocks and never fails: when the pipe is full or gone, the line is
// dropped; so is one of more than 4096 bytes, which a pipe could cut. Numbers that are not finite become null.
//
// Threading: callable from any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

namespace adaptdl::progress {

// Remembers `value` under `key` for the following reports. Cheap enough for every step; writes nothing.
// Keys in use: "epoch", "step" (steps done in this pass over the data), "steps" (steps in the pass), "loss",
// "samples_per_s", "goodput" (samples_per_s x their efficiency), "batch_size" (total over replicas), "replicas",
// "progress" and "targetProgress" (scale-invariant iterations, if a loader's data set has a known size); for programs
// that report in the format of Kubeflow, "progress" and "targetProgress" in percent, "remaining_s" (estimated) and
// others.
void set(std::string_view key, double value);
// The value that `set` remembered under `key`, if there is one.
std::optional<double> get(std::string_view key);

// Writes what `set` remembered, at most ten times a second: calls in between return at once.
void report();

// Writes {"event": name, ...fields} at once. Events in use: "checkpoint" {path}: a checkpoint is committed and agreed
// on.
void event(std::string_view name, const nlohmann::json& fields);

}  // namespace adaptdl::progress
