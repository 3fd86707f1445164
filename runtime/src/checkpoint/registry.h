// The states of this process.
#pragma once

#include <map>
#include <string>

#include "adaptdl/checkpoint.h"

namespace adaptdl::checkpoint {

// The states by name, which is the order in which all replicas iterate over them.
const std::map<std::string, State*>& states();

}  // namespace adaptdl::checkpoint
