// Generations as lists and as JSON. This code is separate from the code that forms them, because a supervisor needs
// only this part.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "adaptdl/generation.h"

namespace adaptdl::generation {

using nlohmann::json;

std::optional<int> Generation::rank_of(const std::string& id) const {
  const auto found = std::find_if(replicas.begin(), replicas.end(), [&](const Member& each) { return each.id == id; });
  if (found == replicas.end()) return {};
  return static_cast<int>(found - replicas.begin());
}

json Generation::to_json() const {
  json members = json::array();
  for (const Member& member : replicas)
    members.push_back({{"id", member.id}, {"address", member.address}, {"port", member.port}});
  return {{"generation", number}, {"replicas", std::move(members)}};
}

Generation Generation::from_json(const json& object) {
  Generation generation{object.at("generation").get<int>(), {}};
  const json& members = object.at("replicas");
  members.at(0);  // throws if there are no members
  for (const json& each : members)
    generation.replicas.push_back({each.at("id").get<std::string>(), each.at("address").get<std::string>(),
                                   each.at("port").get<std::uint16_t>()});
  return generation;
}

}  // namespace adaptdl::generation
