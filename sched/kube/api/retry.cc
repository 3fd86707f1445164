#include "kube/api/retry.h"

#include <algorithm>

namespace adaptdl::kube {
namespace {

bool may_retry(const Failure& failure) {
  if (!failure.answered) return failure.read || !failure.sent;
  switch (failure.status) {
    case 429:
      return true;
    case 500:
      return failure.read && failure.retry_after;
    case 503:
      return failure.read || failure.retry_after;
    case 502:
    case 504:
      return failure.read;  // a proxy's answer: the server may have executed the call
    default:
      return false;
  }
}

}  // namespace

std::optional<std::chrono::milliseconds> retry_pause(const RetryRule& rule, const Failure& failure, int attempt,
                                                     std::chrono::milliseconds elapsed, double random) {
  if (!may_retry(failure)) return std::nullopt;
  const auto grown = std::min(rule.first * (1 << std::clamp(attempt - 1, 0, 16)), rule.max);
  auto pause = std::chrono::duration_cast<std::chrono::milliseconds>(grown * (0.75 + 0.5 * random));
  if (failure.retry_after) pause = std::max<std::chrono::milliseconds>(pause, *failure.retry_after);
  if (elapsed + pause > rule.patience) return std::nullopt;
  return pause;
}

}  // namespace adaptdl::kube
