// Saves and loads LR schedulers: for a SaveableScheduler, its saved state; for any other scheduler, the number of its
// steps.
#pragma once

#include <torch/optim/schedulers/lr_scheduler.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "adaptdl/checkpoint.h"

namespace adaptdl::internal {

// Returns {"type": its name, "steps": the number of steps taken, "state": what a SaveableScheduler saves}.
nlohmann::json scheduler_to_json(torch::optim::LRScheduler& scheduler);

// Returns why `saved` does not fit `scheduler` ("the LR scheduler is A in the checkpoint and B in this program"), or ""
// if it fits.
std::string scheduler_misfit(const nlohmann::json& saved, torch::optim::LRScheduler& scheduler);

// REQUIRES that `saved` fits `scheduler`.
void scheduler_from_json(const nlohmann::json& saved, torch::optim::LRScheduler& scheduler);

}  // namespace adaptdl::internal

namespace adaptdl {

// `scheduler` is null if the program has none.
void save_scheduler(checkpoint::Writer& writer, torch::optim::LRScheduler* scheduler);

// Throws checkpoint::CheckpointError, which names the difference, if the checkpoint's scheduler does not fit
// `scheduler`.
void check_scheduler(const checkpoint::Reader& reader, torch::optim::LRScheduler* scheduler);

// REQUIRES that check_scheduler has succeeded.
void load_scheduler(const checkpoint::Reader& reader, torch::optim::LRScheduler* scheduler);

}  // namespace adaptdl
