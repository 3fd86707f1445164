#include "kube/copy/copier.h"

namespace adaptdl::kube {
const std::string_view kCopierProgram;
}  // namespace adaptdl::kube
