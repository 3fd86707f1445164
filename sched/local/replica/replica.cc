#include "local/replica/replica.h"

#include <utility>

#include "adaptdl/error.h"

namespace adaptdl::sched {

Replica::Replica(const LaunchPlan& plan, int number, const ReplicaPlace& place, LaunchObserver& observer,
                 OnReport on_report)
    : plan_(plan),
      observer_(observer),
      number_(number),
      rank_(place.rank),
      restarts_(place.restarts),
      on_report_(std::move(on_report)),
      log_(plan.logs ? std::optional<ReplicaLog>(std::in_place, *plan.logs, place.rank, plan.job_id, place.restarts)
                     : std::nullopt) {}

std::optional<std::string> Replica::set_rank(int rank) {
  if (std::exchange(rank_, rank) == rank || !log_) return std::nullopt;
  auto warning = log_->flush();
  try {
    log_ = ReplicaLog(*plan_.logs, rank, plan_.job_id, restarts_);
  } catch (const Error& error) {
    warning = error.what();
  }
  return warning;
}

void Replica::take_output(Stream stream, std::string_view text, bool ends) {
  if (log_) log_->line(stream, text, ends);
  last_lines_.add(text);
  observer_.line(rank_, stream, text, ends);
}

}  // namespace adaptdl::sched
