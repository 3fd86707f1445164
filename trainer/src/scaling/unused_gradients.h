// Averages the gradients that c10d::Reducer leaves out because a replica did not use their parameters in the reduced
// pass. Which parameters these are may differ between the replicas.
//
// Each function is a collective call. `unused`: by parameter, whether this replica did not use it in the reduced pass.
// `replicas`: number of replicas in `group`.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "support/torch_compat.h"

namespace adaptdl {

// Averages the local gradients of parameters that no replica used in the reduced pass, because the Reducer does not
// touch these.
void average_unused(const compat::ProcessGroupPtr& group, int replicas, const std::vector<at::Tensor>& params,
                    const std::vector<bool>& unused);

// Adds the gradients that are held for parameters that a replica did not use in the last batch, because the Reducer
// does not include these. `held`: the gradients by parameter; undefined if none are held.
void reduce_unused(const compat::ProcessGroupPtr& group, int replicas, const std::vector<at::Tensor>& params,
                   const std::vector<bool>& unused, const std::vector<at::Tensor>& held);

}  // namespace adaptdl
