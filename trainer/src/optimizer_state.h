// An optimizer's options and memory, to and from checkpoints.
//
// Those of SGD, Adam, AdamW, RMSprop, Adagrad and Adadelta are saved as JSON and tensors. Any other type saves itself,
// by its save() and load(), to an archive of LibTorch.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>

#include "adaptdl/checkpoint.h"
#include "squared_norm.h"

namespace adaptdl {

// Throws UsageError if `optimizer` cannot be saved: LBFGS, or another type without a save() of its own.
void check_supported(const torch::optim::Optimizer& optimizer);

// Saves the options of each parameter group (also its learning rate as schedulers left it) and what is remembered of
// each parameter; parameters go by their place in the groups.
void save_optimizer(checkpoint::Writer& writer, torch::optim::Optimizer& optimizer);

// Throws checkpoint::CheckpointError if what was saved is of another type of optimizer or of other groups.
void check_optimizer(const checkpoint::Reader& reader, torch::optim::Optimizer& optimizer);

// REQUIRES check_optimizer.
void load_optimizer(const checkpoint::Reader& reader, torch::optim::Optimizer& optimizer);

// Whether it is Adam or AdamW, or derived from one of them.
bool is_adam(const torch::optim::Optimizer& optimizer);

// By what Adam divides the gradient of this parameter, which is in parameter group `group`. 1 for other optimizers, and
// in Adam's first steps, in which its moments tell little.
Preconditioner adam_preconditioner(torch::optim::Optimizer& optimizer, std::size_t group, const at::Tensor& param);

// Makes Adam's moments what they are before its first step. Does nothing to other optimizers.
void reset_adam_moments(torch::optim::Optimizer& optimizer);

}  // namespace adaptdl
