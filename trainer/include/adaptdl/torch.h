// All of adaptdl for a training program on LibTorch.
#pragma once

#include "adaptdl/checkpoint.h"
#include "adaptdl/env.h"
#include "adaptdl/progress.h"
#include "adaptdl/torch/accumulator.h"
#include "adaptdl/torch/adadelta.h"
#include "adaptdl/torch/amp.h"
#include "adaptdl/torch/bptt_iterator.h"
#include "adaptdl/torch/data_loader.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/iterable_loader.h"
#include "adaptdl/torch/lr_scheduler.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "adaptdl/torch/sampler.h"
#include "adaptdl/torch/scaling_rules.h"
#include "adaptdl/torch/summary_writer.h"
