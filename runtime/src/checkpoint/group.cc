#include "checkpoint/group.h"

#include <fmt/core.h>

#include "adaptdl/collective.h"
#include "adaptdl/env.h"

namespace adaptdl::checkpoint {

Group Group::for_saving() {
  if (collective::initialized()) return {collective::world().rank(), collective::world().size()};
  if (env::num_replicas() > 1)
    throw UsageError(
        fmt::format("cannot save a checkpoint: ADAPTDL_NUM_REPLICAS is {}, but collective "
                    "communication is not initialized; call init_process_group first",
                    env::num_replicas()));
  return {};
}

Group Group::for_loading() {
  if (collective::initialized()) return {collective::world().rank(), collective::world().size()};
  return {env::replica_rank(), 1};
}

std::vector<std::string> Group::allgather(std::string value, std::string_view purpose) const {
  if (size == 1) return {std::move(value)};
  return collective::world().allgather(std::move(value), purpose);
}

std::string Group::broadcast(std::string value) const {
  if (size == 1) return value;
  return collective::world().broadcast(std::move(value), "the saved checkpoint");
}

void Group::agree_on_success(const std::string& action, const std::optional<std::string>& error) const {
  std::vector<std::string> errors;
  try {
    errors = allgather(error ? "!" + *error : "", "checkpoint");
  } catch (const collective::CollectiveError&) {
    // A replica that failed inside a collective call of its own may already have lost its connections to the others.
    if (error) throw CheckpointError(fmt::format("{}: {}{}", action, prefix(rank), *error));
    throw;
  }
  for (int of_rank = 0; of_rank < size; ++of_rank) {
    const std::string& text = errors[static_cast<std::size_t>(of_rank)];
    if (!text.empty()) throw CheckpointError(fmt::format("{}: {}{}", action, prefix(of_rank), text.substr(1)));
  }
}

std::string Group::prefix(int of_rank) const { return size > 1 ? fmt::format("rank {}: ", of_rank) : ""; }

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace adaptdl::checkpoint
