#include "policy/policies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "adaptdl/error.h"
#include "policy/pollux/pollux.h"
#include "policy/queue/fifo.h"
#include "policy/queue/optimus.h"
#include "policy/queue/tiresias.h"
#include "policy/sia/sia.h"

namespace adaptdl::sched {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Policy> (*make)(const PolicyOptions& options);
};

// The default comes first.
constexpr std::array kPolicies = {
    Entry{"adaptive", [](const PolicyOptions& options) { return make_pollux(adaptive_options(options)); }},
    Entry{"pollux", [](const PolicyOptions& options) { return make_pollux(paper_options(options)); }},
    Entry{"pollux-released", [](const PolicyOptions& options) { return make_pollux(released_options(options)); }},
    Entry{"tiresias", [](const PolicyOptions&) { return make_tiresias(); }},
    Entry{"optimus", [](const PolicyOptions&) { return make_optimus(); }},
    Entry{"fifo", [](const PolicyOptions&) { return make_fifo(); }},
    Entry{"sia", [](const PolicyOptions& options) { return make_sia(options); }},
};

}  // namespace

std::unique_ptr<Policy> make_policy(std::string_view name, const PolicyOptions& options) {
  for (const Entry& entry : kPolicies) {
    if (entry.name == name) return entry.make(options);
  }
  throw UsageError(fmt::format("unknown policy '{}': expected one of {}", name, fmt::join(policy_names(), ", ")));
}

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kPolicies) names.push_back(entry.name);
  return names;
}

}  // namespace adaptdl::sched
