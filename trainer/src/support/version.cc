#include <utility>

#include "support/regroup.h"

namespace adaptdl::internal {

namespace {

std::map<std::string, Version*>& versions() {
  static auto* const map = new std::map<std::string, Version*>;
  return *map;
}

}  // namespace

Version::Version(std::string state) : state_(std::move(state)) { versions()[state_] = this; }
Version::~Version() { versions().erase(state_); }

std::map<std::string, std::uint64_t> Version::all() {
  std::map<std::string, std::uint64_t> counts;
  for (const auto& [state, version] : versions()) counts[state] = version->count;
  return counts;
}

void Version::set_all(const std::map<std::string, std::uint64_t>& counts) {
  for (const auto& [state, version] : versions())
    if (const auto found = counts.find(state); found != counts.end()) version->count = found->second;
}

}  // namespace adaptdl::internal
