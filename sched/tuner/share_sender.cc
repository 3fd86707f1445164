#include "tuner/share_sender.h"

#include <nlohmann/json.hpp>

#include "adaptdl/error.h"

namespace adaptdl::sched::tune {

void ShareSender::tick(const std::function<std::optional<RunEntry>()>& find) {
  // A launcher that is starting or ending refuses the request or does not answer. The request is repeated as long as
  // the launcher is alive.
  try {
    if (pending_) {
      if (!pending_->answer()) return;
      acknowledged_ = sent_;
      pending_.reset();
    }
    if (acknowledged_ == wanted_) return;
    const auto run = find();
    if (!run || !run->alive) return;
    pending_ = std::make_unique<PendingRequest>(*run, share_request(wanted_));
    sent_ = wanted_;
  } catch (const Error&) {
    pending_.reset();
  }
}

}  // namespace adaptdl::sched::tune
