#include "local/devices/device_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/counted.h"
#include "policy/base/job_hints.h"

namespace adaptdl::sched {
namespace {

constexpr char kNode[] = "this machine";
constexpr double kLiveCost = 1;  // seconds that a change of devices costs a run that rescales live

// Devices of different kinds may have the same name.
std::string full_name(const DeviceUser& user, const std::string& device) { return user.kind + ":" + device; }

std::string plain_name(const DeviceUser& user, const std::string& device) {
  return device.substr(user.kind.size() + 1);
}

// Returns the maximum number of devices that a run may be given.
int max_devices(const DeviceUser& user) {
  if (user.pinned && !user.held.empty()) return static_cast<int>(user.held.size());
  return std::min(user.max, static_cast<int>(user.devices.size()));
}

// Returns how many devices a run needs to continue. If its minimum has been raised, it continues with the devices that
// it holds.
int min_devices(const DeviceUser& user) {
  const int held = static_cast<int>(user.held.size());
  if (held == 0) return user.min;
  return user.pinned ? held : std::min(user.min, held);
}

// Returns a unique, human-readable name.
std::string job_name(UserId id, const DeviceUser& user) { return fmt::format("{} ({})", user.name, id); }

std::string waiting_reason(const DeviceUser& user) {
  const int there = static_cast<int>(user.devices.size());
  if (there < user.min)
    return fmt::format("waits: needs at least {}, but may use only {}", counted(user.min, "device"), there);
  return fmt::format("waits: needs at least {}, but the minimums of other runs leave fewer",
                     counted(user.min, "device"));
}

std::string preference_reason(int given, int preferred) {
  if (given >= preferred) return counted(given, "device") + ", as many as preferred";
  return fmt::format("{} of the preferred {}: other runs need the rest", given, counted(preferred, "device"));
}

bool rescales_live(const DeviceUser& user) {
  const auto live = user.hints.find("liveRescale");
  return live != user.hints.end() && *live == true;
}

bool other_limits(const DeviceUser& a, const DeviceUser& b) {
  const auto limits = [](const DeviceUser& user) {
    return std::tie(user.kind, user.min, user.max, user.devices, user.pinned, user.weight, user.preferred_count);
  };
  return limits(a) != limits(b);
}

}  // namespace

bool DeviceShares::set(UserId id, DeviceUser user, std::uint64_t seen, double now) {
  const auto [place, came] = users_.try_emplace(id);
  Entry& entry = place->second;
  const bool due = came || other_limits(entry.user, user);
  entry.user = std::move(user);
  entry.reported_at = now;
  if (came) {
    entry.target = entry.user.held;
    entry.offered = {seen, entry.user.held, ""};
  }
  std::erase_if(entry.unacknowledged, [seen](const DeviceShare& share) { return share.number < seen; });
  return due;
}

void DeviceShares::remove(UserId id) { users_.erase(id); }

// Runs that have devices come first. Both groups are ordered by the time of submission.
DeviceShares::Order DeviceShares::in_order() {
  Order order;
  for (auto& [id, entry] : users_) order.emplace_back(id, &entry);
  std::ranges::stable_sort(order, {}, [](const auto& each) {
    return std::tuple(each.second->user.held.empty(), each.second->user.submitted);
  });
  return order;
}

std::set<std::string> DeviceShares::in_hands(const Entry& entry) const {
  std::set<std::string> devices(entry.user.held.begin(), entry.user.held.end());
  devices.insert(entry.offered.devices.begin(), entry.offered.devices.end());
  for (const DeviceShare& share : entry.unacknowledged) devices.insert(share.devices.begin(), share.devices.end());
  return devices;
}

std::vector<DeviceDemand> DeviceShares::demands(const Order& order, const std::vector<int>& sizes) {
  std::vector<DeviceDemand> demands;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Entry& entry = *order[i].second;
    DeviceDemand& demand = demands.emplace_back();
    demand.count = sizes[i];
    for (const std::string& device : entry.user.devices) demand.allowed.push_back(full_name(entry.user, device));
    for (const auto* devices : {&entry.target, &entry.user.held})
      for (const std::string& device : *devices) demand.preferred.push_back(full_name(entry.user, device));
  }
  return demands;
}

// Returns how many devices each run is guaranteed: its minimum if enough devices remain after the minimums of the
// preceding runs, otherwise 0.
std::vector<int> DeviceShares::min_sizes(const Order& order) {
  std::vector<int> sizes(order.size(), 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    sizes[i] = min_devices(order[i].second->user);
    if (!assign(demands(order, sizes))) sizes[i] = 0;
  }
  return sizes;
}

// Makes the sizes as equal as the limits allow: each additional device goes to the run with the fewest devices relative
// to its weight.
std::vector<int> DeviceShares::fair_sizes(const Order& order, std::vector<int> sizes, const std::vector<int>& limits) {
  std::vector<bool> open;
  for (const int size : sizes) open.push_back(size > 0);
  const auto weighed = [&](std::size_t i) { return sizes[i] / order[i].second->user.weight; };
  for (;;) {
    std::size_t next = order.size();
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (!open[i] || sizes[i] >= limits[i]) continue;
      if (next == order.size() || weighed(i) < weighed(next)) next = i;
    }
    if (next == order.size()) return sizes;
    ++sizes[next];
    if (assign(demands(order, sizes))) continue;
    --sizes[next];
    open[next] = false;
  }
}

// Asks the policy about the runs whose minimum is guaranteed. The other runs must wait, regardless of the policy.
Decision DeviceShares::ask(const Policy& policy, const Order& order, const std::vector<int>& floors,
                           const std::vector<int>& fair, double now) {
  Problem problem;
  problem.now = now;
  std::set<std::string> seen;
  NodeInfo node{kNode, {}, false, ""};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& [id, entry] = order[i];
    const DeviceUser& user = entry->user;
    for (const std::string& device : user.devices)
      if (seen.insert(full_name(user, device)).second) ++node.resources[user.kind];
    if (floors[i] == 0) continue;
    JobInfo job;
    job.name = job_name(id, user);
    job.resources = {{user.kind, 1}};
    job.min_replicas = user.preferred_count ? std::max(user.min, floors[i]) : user.min;
    job.max_replicas = std::max(max_devices(user), job.min_replicas);
    job.preemptible = !user.pinned;
    job.creation_time = user.submitted;
    job.attained_service =
        user.service + static_cast<double>(user.held.size()) * std::max(now - entry->reported_at, 0.0);
    job.num_restarts = user.changes;
    job.weight = user.weight;
    if (rescales_live(user)) job.restart_cost = kLiveCost;
    apply_hints(user.hints, job);
    // Even a program that reports no hints has run on the devices that it holds.
    job.profiled_replicas = std::max(job.profiled_replicas, static_cast<int>(user.held.size()));
    if (!job.speedup) job.max_replicas = std::max(std::min(job.max_replicas, fair[i]), job.min_replicas);
    const std::size_t had = std::min<std::size_t>(entry->target.size(), static_cast<std::size_t>(job.max_replicas));
    if (had > 0) problem.previous[job.name] = Allocation(had, kNode);
    problem.jobs.push_back(std::move(job));
  }
  problem.nodes = {std::move(node)};
  return policy.optimize(problem, state_);
}

std::vector<DeviceShares::Size> DeviceShares::sizes(const Policy& policy, const Order& order, double now) {
  std::vector<int> floors = min_sizes(order), limits;
  for (const auto& [id, entry] : order) limits.push_back(max_devices(entry->user));
  const std::vector<int> fair = fair_sizes(order, floors, limits);
  for (std::size_t i = 0; i < order.size(); ++i)
    if (const auto preferred = order[i].second->user.preferred_count; preferred && floors[i] > 0)
      floors[i] = std::max(floors[i], std::min(*preferred, fair[i]));
  const Decision decision = ask(policy, order, floors, fair, now);
  state_ = decision.state;
  std::vector<int> wanted(order.size(), 0), given(order.size(), 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (floors[i] == 0) continue;
    wanted[i] = static_cast<int>(decision.allocations.at(job_name(order[i].first, order[i].second->user)).size());
    given[i] = std::max(wanted[i], floors[i]);
  }
  while (!assign(demands(order, given))) {
    std::size_t richest = 0;
    for (std::size_t i = 1; i < order.size(); ++i)
      if (given[i] - floors[i] >= given[richest] - floors[richest]) richest = i;
    --given[richest];
  }
  // Devices that the policy left unused go to the runs that prefer more.
  for (std::size_t i = 0; i < order.size(); ++i)
    limits[i] = std::min(limits[i], order[i].second->user.preferred_count.value_or(given[i]));
  given = fair_sizes(order, given, limits);
  std::vector<Size> sizes;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& [id, entry] = order[i];
    const std::string devices = counted(given[i], "device");
    if (floors[i] == 0) {
      sizes.push_back({0, waiting_reason(entry->user)});
    } else if (given[i] > wanted[i] && entry->user.pinned) {
      sizes.push_back({given[i], devices + ": keeps what it has"});
    } else if (const auto preferred = entry->user.preferred_count; preferred && !entry->user.pinned) {
      sizes.push_back({given[i], preference_reason(given[i], *preferred)});
    } else if (given[i] > wanted[i]) {
      sizes.push_back({given[i], devices + ", its minimum: more devices would help other runs more"});
    } else if (given[i] < wanted[i]) {
      sizes.push_back({given[i], devices + ": other runs need the rest"});
    } else {
      sizes.push_back({given[i], decision.reasons.at(job_name(id, entry->user))});
    }
  }
  return sizes;
}

void DeviceShares::decide(const Policy& policy, double now) {
  if (users_.empty()) return;
  const Order order = in_order();
  std::vector<int> counts;
  const std::vector<Size> sizes = this->sizes(policy, order, now);
  for (const Size& size : sizes) counts.push_back(size.devices);
  std::set<std::string> busy;
  for (const auto& [id, entry] : order)
    for (const std::string& device : in_hands(*entry)) busy.insert(full_name(entry->user, device));
  const auto devices = assign(demands(order, counts), busy);
  for (std::size_t i = 0; i < order.size(); ++i) {
    Entry& entry = *order[i].second;
    entry.reason = sizes[i].reason;
    entry.target.clear();
    for (const std::string& device : devices->at(i)) entry.target.push_back(plain_name(entry.user, device));
  }
}

std::map<UserId, DeviceShare> DeviceShares::take_changes() {
  std::map<UserId, DeviceShare> news;
  for (auto& [id, entry] : users_) {
    if (entry.reason.empty()) continue;
    DeviceShare share{entry.offered.number + 1, {}, entry.reason};
    for (const std::string& device : entry.target) {
      const bool elsewhere = std::ranges::any_of(users_, [&, own = id, kind = entry.user.kind](const auto& other) {
        return other.first != own && other.second.user.kind == kind && in_hands(other.second).contains(device);
      });
      if (!elsewhere) share.devices.push_back(device);
    }
    const std::size_t missing = entry.target.size() - share.devices.size();
    if (missing > 0) share.reason += fmt::format("; {} more when other runs release them", missing);
    // Fewer devices than the run needs are useless: a run that is training keeps its devices until enough are
    // available.
    const int enough = min_devices(entry.user);
    if (static_cast<int>(share.devices.size()) < enough) {
      const bool continues = !entry.user.held.empty() && static_cast<int>(entry.target.size()) >= enough;
      share.devices = continues ? entry.offered.devices : std::vector<std::string>();
    }
    if (!entry.fresh && share.devices == entry.offered.devices && share.reason == entry.offered.reason) continue;
    entry.fresh = false;
    if (!entry.offered.devices.empty()) entry.unacknowledged.push_back(entry.offered);
    entry.offered = share;
    news.emplace(id, std::move(share));
  }
  return news;
}

}  // namespace adaptdl::sched
