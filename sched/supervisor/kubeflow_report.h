// Reports of progress in the format of Kubeflow Trainer, which Hugging Face's Trainer and Kubeflow's SDK send:
//
//   {"trainerStatus": {"progressPercentage": 42, "estimatedRemainingSeconds": 795,
//                      "metrics": [{"name": "loss", "value": "0.2347"}]}}
//
// Each field may be missing or null, and unknown fields are ignored.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace adaptdl::sched {

// Returns the report with the keys of adaptdl/progress.h: `progress` of `targetProgress` 100, `remaining_s`, and the
// metrics, of which `current_epoch`, `current_step` and `total_steps` become `epoch`, `step` and `steps`. All values
// are finite numbers. Left out are metrics that are not finite numbers, have a name that cannot be printed or is used
// otherwise, or come after the first 64 without being one of `epoch`, `step`, `steps` and `loss`. Throws UsageError, in
// one line, if the body has another form, or a number that is out of range.
nlohmann::json kubeflow_report(const nlohmann::json& body);

}  // namespace adaptdl::sched
