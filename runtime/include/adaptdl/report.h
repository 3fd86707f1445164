// Reports a training job's results, which `adaptdl tune` uses to compare trials.
#pragma once

#include <string_view>

namespace adaptdl {

// Reports the newest value of a metric, such as the accuracy on the validation set after an epoch. All replicas may
// call this function with the same value; only rank 0 writes the value.
//
// If ADAPTDL_RESULTS_FILE is set, a line {"METRIC": VALUE, "step": S, "epoch": E} is appended to that file and flushed
// to disk. S is the progress of the training in scale-invariant samples: the number of samples that training at the
// initial batch size would need for the same progress (metrics::progress() times that batch size, rounded). This unit
// makes trials with different batch sizes comparable. S is omitted without adaptive training, and E outside an epoch
// loop. A value that is not finite is written as null. The value also appears among the metrics of `adaptdl ls --json`.
//
// The file can be /dev/stdout, as in trials of `adaptdl tune --cluster`. If it is not a regular file but, for example,
// a pipe or a terminal, a line break is written before the line, because other output may have left a line unfinished.
//
// If the file cannot be written, a warning is logged once. Throws UsageError if `metric` is empty, "step" or "epoch".
// Threading: only the training thread may call this function.
void report(std::string_view metric, double value);

}  // namespace adaptdl
