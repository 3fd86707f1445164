#include "checkpoint/states.h"

#include <fmt/core.h>

#include "checkpoint/manifest.h"

namespace adaptdl::checkpoint {

namespace {

// Never destroyed, because a state may be a global that outlives other globals.
std::map<std::string, State*>& registry() {
  static auto* map = new std::map<std::string, State*>();
  return *map;
}

}  // namespace

const std::map<std::string, State*>& states() { return registry(); }

State::State(std::string name) : name_(std::move(name)) {
  check_state_name<UsageError>(name_, "cannot register a state");
  if (!registry().emplace(name_, this).second)
    throw UsageError(fmt::format("state '{}' already exists; give each state its own name", name_));
}

State::~State() { registry().erase(name_); }

}  // namespace adaptdl::checkpoint
