// The measurements of a job while it trains (step times, gradient statistics, progress), and what follows from them:
// its goodput function, and the hints on which a scheduler bases its decisions.
//
// Step times are averaged by (nodes, replicas, atomic batch size). A background thread fits the seven parameters of the
// goodput model (goodput.h) to them and posts hints to the supervisor. Neither delays a step, and a supervisor that is
// slow or unreachable causes only a warning.
//
// The checkpoint state "adaptdl-metrics" is loaded when one of these functions is first called. The measurements of
// rank 0 are the ones that are saved and used for decisions.
// Threading: must be called by the training thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "adaptdl/goodput.h"

namespace adaptdl::metrics {

// Returns whether anything is measured in this process. The other functions create the checkpoint state, which either
// all replicas must have or none; this function does not create it.
bool in_use() noexcept;

// The batch sizes of the data loader that trains; they are part of the hints.
struct BatchSizes {
  std::size_t init_batch_size = 0;  // samples per step over all replicas
  goodput::Limits limits;           // max_batch_size is set if the batch size is adaptive
};
void set_batch_sizes(const BatchSizes& sizes);
// Returns the batch sizes that were set last, or none.
const std::optional<BatchSizes>& batch_sizes();

// Adds the time of one step at a configuration, in seconds. It includes the forward and backward pass, the optimizer,
// and the time between two batches. `sync` is the part of it that was spent waiting for the synchronization of
// gradients, or none for an accumulation step, which does not synchronize. A time above three times the mean (for
// example after a suspend) counts as three times the mean; the first ten times are compared with their median instead,
// because caches may be cold. Old times lose weight: the weight of all times of a kind is halved whenever it reaches
// 1000. A time that is negative or not finite is ignored.
void record_step(int nodes, int replicas, std::size_t atomic_bsz, double seconds, std::optional<double> sync);

// Set the gradient statistics and the progress (scale-invariant iterations) of one model, by its name. A job with
// several models has the sum of their statistics and the maximum of their progress.
void set_grad_params(const std::string& model, const goodput::GradParams& params);
void set_progress(const std::string& model, double iterations);
// Returns the progress of the job; 0 at its start.
double progress();
// Sets the number of scale-invariant iterations that the job needs in total, if it is known; it is part of the hints.
void set_target_progress(double iterations);
// Returns the number that was set last, or none.
std::optional<double> target_progress();

// Starts fitting the goodput model to all recorded times in the background. Does nothing if a fit is pending or if
// there are no recorded times.
void begin_fit();
// Returns whether begin_fit has started a fit that finish_fit has not finished.
bool fit_pending();
// Waits for the pending fit, which takes milliseconds and has typically ended already, and uses its result from now on.
void finish_fit();

// Returns the goodput function of the last fit, the current gradient statistics and the initial batch size, or none
// until all three exist. If the batch size is fixed, the statistics are not needed.
std::optional<goodput::GoodputFunction> goodput_function();

// Passes the current hints to the background thread, which posts them. Does nothing on other ranks than 0, and without
// a supervisor. If the previous post has not ended, this does not wait for it; only the newest hints are posted after
// it. When the process exits, it waits up to 1 s for the last ones.
void report_hints();

// Returns the hints with all keys of the protocol (docs/formats.md) except liveRescale; unknown values are null.
nlohmann::json hints();

// The clock of all measurements and intervals, in seconds since an arbitrary start. Default: the steady clock.
double now();
// Sets another clock, for tests and replays; an empty function restores the default.
void set_clock(std::function<double()> clock);

// Forgets everything, including the checkpoint state. For tests.
void reset();

}  // namespace adaptdl::metrics
