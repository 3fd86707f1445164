#include "operator/jobs/create_error.h"

#include <string_view>

namespace adaptdl::sched {

CreateError create_error(const kube::ApiError& error) {
  const std::string_view what = error.what();
  const auto contains = [&](std::string_view text) { return what.find(text) != std::string_view::npos; };
  if (error.code() == 403) {
    if (contains("exceeded quota")) return CreateError::kQuota;
    if (contains("cannot create resource")) return CreateError::kPermission;
    if (contains("error looking up service account") || contains("status unknown for quota"))
      return CreateError::kNotReady;
    return CreateError::kInvalid;
  }
  const bool invalid = error.code() == 400 || error.code() == 413 || error.code() == 422;
  return invalid ? CreateError::kInvalid : CreateError::kOther;
}

}  // namespace adaptdl::sched
