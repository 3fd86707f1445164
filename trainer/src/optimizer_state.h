// An optimizer's options and memory, to and from checkpoints: SGD, Adam, AdamW, RMSprop, Adagrad and Adadelta.
#pragma once

#include <torch/optim/optimizer.h>

#include "adaptdl/checkpoint.h"

namespace adaptdl::torch {

// Throws UsageError, which names what is supported, if `optimizer` cannot be saved (LBFGS, an optimizer of the user's
// own).
void check_supported(const ::torch::optim::Optimizer& optimizer);

// Saves the options of each parameter group (also its learning rate as schedulers left it) and what is remembered of
// each parameter; parameters go by their place in the groups.
void save_optimizer(checkpoint::Writer& writer, ::torch::optim::Optimizer& optimizer);

// Throws checkpoint::CheckpointError if what was saved is of another type of optimizer or of other groups.
void check_optimizer(const checkpoint::Reader& reader, ::torch::optim::Optimizer& optimizer);

// REQUIRES check_optimizer.
void load_optimizer(const checkpoint::Reader& reader, ::torch::optim::Optimizer& optimizer);

}  // namespace adaptdl::torch
