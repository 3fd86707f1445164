// The states of this process.
#pragma once

#include <map>
#include <string>

#include "adaptdl/checkpoint.h"

namespace adaptdl::checkpoint {

// The states, sorted by name. All replicas iterate over them in this order.
const std::map<std::string, State*>& states();

}  // namespace adaptdl::checkpoint
