// Saves an optimizer's options and state to checkpoints, and loads them.
//
// SGD, Adam, AdamW, RMSprop, Adagrad and Adadelta are saved as JSON and tensors. An optimizer of another type is saved
// to a LibTorch archive by its own save() and load().
#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>

#include "adaptdl/checkpoint.h"
#include "scaling/squared_norm.h"

namespace adaptdl {

// Throws UsageError if `optimizer` cannot be saved: LBFGS, or another type without its own save().
void check_supported(const torch::optim::Optimizer& optimizer);

// Saves the options of each parameter group, including the learning rate that the scheduler set last, and the state of
// each parameter. Parameters are identified by their position in the groups.
void save_optimizer(checkpoint::Writer& writer, torch::optim::Optimizer& optimizer);

// Throws checkpoint::CheckpointError if the saved optimizer has a different type, different groups, or tensors of
// different shapes.
void check_optimizer(const checkpoint::Reader& reader, torch::optim::Optimizer& optimizer);

// REQUIRES that check_optimizer has succeeded.
void load_optimizer(const checkpoint::Reader& reader, torch::optim::Optimizer& optimizer);

// Returns whether the optimizer is Adam or AdamW, or derived from one of them.
bool is_adam(const torch::optim::Optimizer& optimizer);

// Returns the value by which Adam divides the gradient of `param`, which is in parameter group `group`. It is 1 for
// other optimizers, and in Adam's first steps, when the moments are not yet reliable.
Preconditioner adam_preconditioner(torch::optim::Optimizer& optimizer, std::size_t group, const at::Tensor& param);

// Resets Adam's moments to their values before the first step. Does nothing for other optimizers.
void reset_adam_moments(torch::optim::Optimizer& optimizer);

}  // namespace adaptdl
