// The states of this process.
#pragma once

#include <map>
#include <string>

#include "adaptdl/checkpoint.h"

namespace adaptdl::checkpoint {

// By name, and so in the order in which all replicas go through them.
const std::map<std::string, State*>& states();

}  // namespace adaptdl::checkpoint
