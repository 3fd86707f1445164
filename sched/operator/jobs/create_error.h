// Classifies the errors with which the API server refuses to create a pod.
#pragma once

#include "kube/api/error.h"

namespace adaptdl::sched {

enum class CreateError {
  kQuota,       // the pod exceeds a quota of the namespace
  kInvalid,     // the pod is invalid, or a policy of the cluster forbids it, so a retry cannot succeed
  kNotReady,    // the namespace, its quota or the service account has just been created, or does not exist yet
  kPermission,  // the operator has no permission to create pods
  kOther,
};

CreateError create_error(const kube::ApiError& error);

}  // namespace adaptdl::sched
