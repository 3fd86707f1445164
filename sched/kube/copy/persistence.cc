#include "kube/copy/persistence.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace adaptdl::kube {
namespace {

constexpr auto kMaxPause = std::chrono::seconds(5);
constexpr auto kTick = std::chrono::milliseconds(50);

}  // namespace

void Persistence::wait(const Broken& why, std::uint64_t bytes) {
  const auto now = std::chrono::steady_clock::now();
  if (breaks_ == 0 || bytes > bytes_) {
    breaks_ = 0;
    since_ = now;
  }
  bytes_ = bytes;
  if (now - since_ > patience_) {
    throw Error(fmt::format("{}; no progress for {}s", why.what(),
                            std::chrono::duration_cast<std::chrono::seconds>(now - since_).count()));
  }
  if (notice_) notice_(fmt::format("{}; trying again", why.what()));
  const auto pause = std::min<std::chrono::milliseconds>(kMaxPause, first_pause_ * (1 << std::min(breaks_++, 8)));
  for (const auto until = now + pause; std::chrono::steady_clock::now() < until;) {
    check(stop_);
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(kTick, pause));
  }
}

}  // namespace adaptdl::kube
