// The measurements of a training job (step times, gradient statistics, progress) and what is derived from them: the
// job's goodput function, and the hints on which a scheduler bases its decisions.
//
// Step times are averaged by (nodes, replicas, atomic batch size). A background thread fits the seven parameters of the
// goodput model (goodput.h) to them and posts hints to the supervisor. Neither the fit nor the posts delay a step, and
// a supervisor that is slow or unreachable causes only a warning.
//
// The checkpoint state "adaptdl-metrics" is created and loaded when a measurement is first recorded, set or read. Only
// rank 0's measurements are saved and used for decisions.
// Threading: only the training thread may call these functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "adaptdl/goodput.h"

namespace adaptdl::metrics {

// Returns whether anything is measured in this process, that is, whether the checkpoint state exists. The state must
// exist on all replicas or on none, so this function, unlike those that record or read measurements, does not create
// it.
bool in_use() noexcept;

// The batch sizes of the data loader used for training; they are part of the hints.
struct BatchSizes {
  std::size_t init_batch_size = 0;  // samples per step across all replicas
  goodput::Limits limits;           // max_batch_size is set if the batch size is adaptive
};
void set_batch_sizes(const BatchSizes& sizes);
// Returns the batch sizes that were set last, or nullopt if none were set.
const std::optional<BatchSizes>& batch_sizes();

// Records the duration of one step in a configuration, in seconds. The duration includes the forward and backward pass,
// the optimizer, and the time between two batches. `sync` is the part of the duration that was spent waiting for the
// synchronization of gradients, or nullopt for an accumulation step, which does not synchronize. A time above three
// times the mean (for example after a suspend) is counted as three times the mean; the first ten times are compared
// with their median instead, because caches may be cold. Older times count less: whenever the total weight of all times
// of one kind reaches 1000, it is halved. A time that is negative or not finite is ignored.
void record_step(int nodes, int replicas, std::size_t atomic_bsz, double seconds, std::optional<double> sync);

// These functions set the gradient statistics and the progress (scale-invariant iterations) of the model with that
// name. If a job has several models, their statistics are summed, and the most advanced model determines the progress.
void set_grad_params(const std::string& model, const goodput::GradParams& params);
void set_progress(const std::string& model, double iterations);
// Returns the job's progress; 0 at its start.
double progress();
// Sets the number of scale-invariant iterations that the job needs in total, if it is known; it is part of the hints.
void set_target_progress(double iterations);
// Returns the number that was set last, or nullopt if none was set.
std::optional<double> target_progress();

// Starts fitting the goodput model to all recorded times in the background. Does nothing if a fit is pending or if
// there are no recorded times.
void begin_fit();
// Returns whether begin_fit has started a fit for which finish_fit has not been called yet.
bool fit_pending();
// Waits for the pending fit, which takes milliseconds and has typically ended already, and adopts its result.
void finish_fit();

// Returns the goodput function of the last fit, the current gradient statistics and the initial batch size, or nullopt
// until all three exist. If the batch size is fixed, the statistics are not needed.
std::optional<goodput::GoodputFunction> goodput_function();

// Passes the current hints to the background thread, which posts them. Does nothing on ranks other than 0 or without a
// supervisor. Does not wait if the previous post is still in progress; once that post has ended, only the newest hints
// are posted. When the process exits, it waits up to 1 s for the last hints to be posted.
void report_hints();

// Returns the hints with all keys of the protocol (docs/formats.md) except liveRescale; unknown values are null.
nlohmann::json hints();

// Returns the current time of the clock that all measurements and intervals use, in seconds since an arbitrary start.
// Default: the steady clock.
double now();
// Sets another clock, for tests and replays; an empty function restores the default.
void set_clock(std::function<double()> clock);

// Forgets everything, including the checkpoint state. For tests.
void reset();

}  // namespace adaptdl::metrics
