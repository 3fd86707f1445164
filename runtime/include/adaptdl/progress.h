// Progress that a replica reports to its launcher.
//
// If ADAPTDL_STATUS_FD is set, each report is a JSON object on one line, written to that descriptor. `adaptdl run`
// shows the reported values in its status line. A report never blocks and never fails: the line is dropped if the pipe
// is full or closed, or if the line is longer than 4096 bytes, because a nearly full pipe could split it. Numbers that
// are not finite become null.
//
// Threading: all functions may be called from any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

namespace adaptdl::progress {

// Stores `value` under `key` for subsequent reports. Does not write anything, and is cheap enough to call in every
// step.
// Keys in use: "epoch", "step" (steps done in this pass over the data), "steps" (steps in the pass), "loss",
// "samples_per_s", "goodput" (samples_per_s x efficiency), "batch_size" (total across replicas), "replicas", and
// "progress" and "targetProgress" (scale-invariant iterations, if a loader's dataset has a known size). Reports in
// Kubeflow's format contain "progress" and "targetProgress" in percent, "remaining_s" (estimated) and others.
void set(std::string_view key, double value);
// Returns the value that `set` stored under `key`, or nullopt.
std::optional<double> get(std::string_view key);

// Writes the stored values at most ten times per second; more frequent calls do nothing.
void report();

// Writes {"event": name, ...fields} immediately. For example, "checkpoint" {path} reports that a checkpoint is
// committed and that the replicas agree on it; docs/formats.md lists the other events.
void event(std::string_view name, const nlohmann::json& fields);

}  // namespace adaptdl::progress
