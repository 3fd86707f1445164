// Parses progress reports in Kubeflow Trainer's format, which Hugging Face's Trainer and Kubeflow's SDK send:
//
//   {"trainerStatus": {"progressPercentage": 42, "estimatedRemainingSeconds": 795,
//                      "metrics": [{"name": "loss", "value": "0.2347"}]}}
//
// Each field may be missing or null, and unknown fields are ignored.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace adaptdl::sched {

// Returns the report with the keys from adaptdl/progress.h: `progress` with a `targetProgress` of 100, `remaining_s`,
// and the metrics, where `current_epoch`, `current_step` and `total_steps` are renamed to `epoch`, `step` and `steps`.
// All values are finite numbers. Metrics are omitted if they are not finite numbers, if their names are empty, too
// long, not printable or reserved for other fields, or if they follow the first 64 and are not `epoch`, `step`, `steps`
// or `loss`. Throws UsageError with a one-line message if the body is malformed or a number is out of range.
nlohmann::json kubeflow_report(const nlohmann::json& body);

}  // namespace adaptdl::sched
