// LR schedulers to and from checkpoints: ours by what they save, others by the number of their steps.
#pragma once

#include <torch/optim/schedulers/lr_scheduler.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "adaptdl/checkpoint.h"

namespace adaptdl::internal {

// {"type": its name, "steps": how often it was stepped, "state": what a SaveableScheduler saves}.
nlohmann::json scheduler_to_json(torch::optim::LRScheduler& scheduler);

// Why `saved` does not fit `scheduler`, as the end of a sentence on the former ("the LR scheduler is A there and B in
// this program"); empty if it does.
std::string scheduler_misfit(const nlohmann::json& saved, torch::optim::LRScheduler& scheduler);

// REQUIRES that it fits.
void scheduler_from_json(const nlohmann::json& saved, torch::optim::LRScheduler& scheduler);

}  // namespace adaptdl::internal

namespace adaptdl {

// `scheduler` may be null: the program has none.
void save_scheduler(checkpoint::Writer& writer, torch::optim::LRScheduler* scheduler);

// Throws checkpoint::CheckpointError, which names both types, if the checkpoint has another scheduler.
void check_scheduler(const checkpoint::Reader& reader, torch::optim::LRScheduler* scheduler);

// REQUIRES check_scheduler.
void load_scheduler(const checkpoint::Reader& reader, torch::optim::LRScheduler* scheduler);

}  // namespace adaptdl
