// What a job measures about itself while it trains: step times, gradient statistics, progress; and from them its
// goodput function, and the hints that a scheduler decides by.
//
// Step times are averaged by (nodes, replicas, atomic batch size). A background thread fits the seven parameters of the
// goodput model to them (goodput.h) and posts hints to the supervisor; neither holds up a step, and a supervisor that
// is slow or gone is a warning.
//
// State: "adaptdl-metrics", loaded from the checkpoint when one of these functions is first called. It is rank 0's
// measurements that are saved and decided by.
// Threading: to be called by the training thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "adaptdl/goodput.h"

namespace adaptdl::metrics {

// Whether anything is measured here. The other functions make the state that checkpoints have of it, which all replicas
// must have, or none; this one does not.
bool in_use() noexcept;

// The batch sizes of the loader that trains: part of the hints.
struct BatchSizes {
  std::size_t init_batch_size = 0;  // samples of a step over all replicas
  goodput::Limits limits;           // max_batch_size is set if the batch size is adaptive
};
// Sets the batch sizes.
void set_batch_sizes(const BatchSizes& sizes);
// The batch sizes that were set last; none if they were not.
const std::optional<BatchSizes>& batch_sizes();

// Adds the time of one step at a configuration, in seconds: forward and backward pass, optimizer and what lies between
// two batches.
// `sync`: the part of it that was spent waiting for the synchronisation of gradients; none for an accumulation step,
// which has no synchronisation. A time of more than three times the mean (a machine that slept) counts as three times
// the mean; the first ten are held against their median instead (caches that were cold). Old times fade: the weight of
// all is halved whenever there are 1,000 of a kind. A time that is negative or not finite is left out.
void record_step(int nodes, int replicas, std::size_t atomic_bsz, double seconds, std::optional<double> sync);

// Set the gradient statistics and the progress (scale-invariant iterations) of one model, by its name. A job with
// several models has the sum of their statistics, and the progress of the one that is furthest.
void set_grad_params(const std::string& model, const goodput::GradParams& params);
void set_progress(const std::string& model, double iterations);
// The progress of the job; 0 at its start.
double progress();
// How many such iterations the job needs in all, if that is known: part of the hints.
void set_target_progress(double iterations);
// What was set last; none if nothing was.
std::optional<double> target_progress();

// Begins to fit the goodput model to all that was recorded, in the background; does nothing if a fit is under way or
// nothing was recorded.
void begin_fit();
// Whether a fit is begun whose result was not taken yet.
bool fit_pending();
// Waits for the fit, typically milliseconds that have passed already, and takes its result.
void finish_fit();

// The goodput function of the last fit, the present gradient statistics and the initial batch size; none before there
// are all three. Where the batch size is fixed it does without the statistics.
std::optional<goodput::GoodputFunction> goodput_function();

// Hands the current hints to the background thread, which posts them, on rank 0 and if there is a supervisor. A post
// that has not ended is not waited for: the newest hints follow it. An exit of the process waits up to 1 s for the last
// ones.
void report_hints();

// The hints as they would be posted: every key of the protocol (docs/formats.md), null where nothing is known.
nlohmann::json hints();

// The clock of all measurements and intervals: seconds since some start. Default: the steady clock.
double now();
// For tests and replays: another clock; an empty function brings the default back.
void set_clock(std::function<double()> clock);

// Forgets everything, the checkpoint state included. For tests.
void reset();

}  // namespace adaptdl::metrics
