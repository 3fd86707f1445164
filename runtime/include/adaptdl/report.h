// Results of a training job, by which `adaptdl tune` compares trials.
#pragma once

#include <string_view>

namespace adaptdl {

// Reports the newest value of a metric, such as the accuracy on the validation set after an epoch. All replicas may
// call it, with the same value; rank 0 reports.
//
// If ADAPTDL_RESULTS_FILE is set, a line {"METRIC": VALUE, "step": S, "epoch": E} is appended to that file and flushed
// to disk. S says how far the training is, in scale-invariant samples: the samples that training at the initial batch
// size needs to get as far (metrics::progress() times that batch size, rounded). It compares trials with different
// batch sizes; it is omitted without adaptive training, and E outside an epoch loop. A value that
// is not finite is null. The value also appears among the metrics of `adaptdl ls --json`.
//
// The file can be /dev/stdout, as it is in trials of `adaptdl tune --cluster`. If it is a pipe or a terminal, a line
// break precedes the line, because other output may have begun a line.
//
// A file that cannot be written is a warning, once. Throws UsageError if `metric` is empty, "step" or "epoch".
// Threading: to be called by the training thread only.
void report(std::string_view metric, double value);

}  // namespace adaptdl
