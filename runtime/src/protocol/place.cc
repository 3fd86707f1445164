#include "protocol/place.h"

#include "adaptdl/env.h"

namespace adaptdl::generation {
namespace {

Place initial_place() {
  Place own{.id = env::replica_id().value_or(""), .current = env::generation()};
  own.joining = !own.id.empty() && own.current > 0;
  return own;
}

}  // namespace

bool Place::follows() const { return !id.empty() && !declined && env::supervisor_url() && env::job_id(); }

Place& place() {
  static auto* const only = new Place(initial_place());  // never destroyed: threads may connect while the process exits
  return *only;
}

}  // namespace adaptdl::generation
