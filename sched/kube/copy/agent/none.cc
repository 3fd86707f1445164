#include "kube/copy/agent.h"

namespace adaptdl::kube {
const std::string_view kAgentProgram;
}  // namespace adaptdl::kube
