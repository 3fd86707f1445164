#include "local/devices/cluster_relay.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "adaptdl/error.h"
#include "local/devices/agent_message.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;

// How long a run waits for more devices to connect before it starts on those that have connected.
constexpr auto kGather = std::chrono::seconds(3);
constexpr auto kReopenAfter = std::chrono::seconds(1);

std::string node_of(const std::string& device) { return device.substr(0, device.rfind('/')); }

}  // namespace

ClusterRelay::ClusterRelay(const LaunchPlan& plan, RunSize& size, const DeviceTime& device_time,
                           const std::filesystem::path& program)
    : AgentShare(plan, plan.job_id, size, device_time, {}, program),  // the cluster's devices are not known yet
      rescale_timeout_(plan.relay.value().rescale_timeout),
      channel_(Fd(plan.relay.value().in), Fd(plan.relay.value().out)),
      watch_(::epoll_create1(EPOLL_CLOEXEC)) {
  for (const int fd : {channel_.fd(), agent().fd()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(watch_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      throw Error(fmt::format("cannot watch the cluster driver: {}; a higher `ulimit -n` may help",
                              std::strerror(errno)));
  }
}

void ClusterRelay::pump() {
  channel_.write();
  try {
    if (!channel_.receive([this](const json& message) { take_message(message); }))
      throw Error("the cluster driver has ended");
  } catch (const json::exception& error) {
    throw Error(fmt::format("invalid message from the cluster driver: {}", error.what()));
  }
}

void ClusterRelay::take_message(const json& message) {
  const auto what = message.at("is").get<std::string>();
  if (what == "nodes") {
    nodes_.clear();
    for (const json& node : message.at("nodes")) {
      const int devices = std::max(node.at("devices").get<int>(), 0);
      nodes_[node.at("id").get<std::string>()] = {node.at("address").get<std::string>(), devices,
                                                  node.at("leaving").get<bool>()};
    }
    return;
  }
  const auto device = message.at("device").get<std::string>();
  const auto link = links_.find(device);
  if (link == links_.end()) return;  // already closed
  if (what == "connected") {
    link->second = Link::kConnected;
    if (first_connected_ == Clock::time_point()) first_connected_ = Clock::now();
  } else if (what == "lost") {
    links_.erase(link);
    retry_[device] = Clock::now() + kReopenAfter;
  }
  events_.push_back(message);
}

void ClusterRelay::admit_nodes() {
  std::erase_if(admitted_, [this](const std::string& id) { return !nodes_.contains(id); });
  if (admitted_.size() == nodes_.size()) {
    withheld_since_ = {};
    return;
  }
  if (withheld_since_ == Clock::time_point()) withheld_since_ = Clock::now();
  int devices = 0;
  for (const auto& [id, node] : nodes_) devices += node.leaving ? 0 : node.devices;
  const json& hints = request().hints;
  const bool follows = hints.is_object() && hints.value("liveRescale", false);
  const bool stays = std::ranges::all_of(allocated_, [this](const std::string& device) {
    const auto node = nodes_.find(node_of(device));
    return node != nodes_.end() && !node->second.leaving;
  });
  const bool restarts = !allocated_.empty() && stays && !follows;
  if (restarts && devices < size().max_wanted() && Clock::now() - withheld_since_ < rescale_timeout_) return;
  for (const auto& [id, node] : nodes_) admitted_.insert(id);
}

std::vector<std::string> ClusterRelay::usable_devices() const {
  std::vector<std::string> devices;
  for (const auto& [id, node] : nodes_) {
    if (!admitted_.contains(id)) continue;
    for (int i = 0; i < node.devices && !node.leaving && devices.size() < kMaxAgentDevices; ++i)
      devices.push_back(fmt::format("{}/{}", id, i));
  }
  return devices;
}

void ClusterRelay::complete(AgentRequest& request) {
  admit_nodes();
  request.devices = usable_devices();
  if (std::exchange(requested_, request.max) != request.max)
    channel_.send({{"do", "want"}, {"devices", request.max}});
}

void ClusterRelay::open_and_close() {
  for (auto link = links_.begin(); link != links_.end();) {
    const std::string device = link->first;
    ++link;
    if (std::ranges::find(wanted_, device) != wanted_.end() ||
        std::ranges::find(request().held, device) != request().held.end())
      continue;
    channel_.send({{"do", "close"}, {"device", device}});
    links_.erase(device);
    events_.push_back({{"is", "lost"}, {"device", device}, {"why", "its device was released"}});
  }
  for (const std::string& device : wanted_) {
    const auto retry = retry_.find(device);
    if (links_.contains(device) || !nodes_.contains(node_of(device)) ||
        (retry != retry_.end() && Clock::now() < retry->second))
      continue;
    links_[device] = Link::kOpening;
    channel_.send({{"do", "open"}, {"device", device}, {"node", node_of(device)}});
  }
}

bool ClusterRelay::has_devices() const noexcept {
  return std::ranges::any_of(allocated_, [this](const std::string& device) {
    const auto link = links_.find(device);
    return link != links_.end() && link->second == Link::kConnected;
  });
}

bool ClusterRelay::allocate() {
  std::vector<std::string> devices;
  for (const std::string& device : wanted_) {
    const auto link = links_.find(device);
    if (link != links_.end() && link->second == Link::kConnected) devices.push_back(device);
  }
  const bool gathered = devices.size() == wanted_.size() || Clock::now() - first_connected_ > kGather;
  const bool enough = static_cast<int>(devices.size()) >= size().min();
  if (devices.empty() || devices == allocated_ || (allocated_.empty() && (!gathered || !enough))) return false;
  allocated_ = devices;
  size().allocate(std::move(devices));
  return true;
}

bool ClusterRelay::take() {
  pump();
  update();
  if (auto allocation = agent().take()) {
    answered_ = true;
    wanted_ = std::move(allocation->devices);
    if (!request().devices.empty()) reason_ = std::move(allocation->reason);
  } else if (!answered_ && Clock::now() - began_ > kFirstAllocation) {
    reason_ = "the agent that shares the cluster among jobs is not responding";
  }
  open_and_close();
  if (!has_devices()) {
    // As at the start, the run must not begin on the first devices that connect if more are about to.
    allocated_.clear();
    if (std::ranges::none_of(links_, [](const auto& link) { return link.second == Link::kConnected; }))
      first_connected_ = {};
  }
  return allocate();
}

void ClusterRelay::send(const std::string& device, const json& message) {
  if (links_.contains(device)) channel_.send({{"do", "send"}, {"device", device}, {"message", message}});
}

void ClusterRelay::add_to(std::vector<pollfd>& polled, bool) const { channel_.add_to(polled); }

void ClusterRelay::receive(Listener& listener) {
  pump();
  while (!events_.empty()) {
    const json event = std::move(events_.front());
    events_.pop_front();
    const auto device = event.at("device").get<std::string>();
    if (event.at("is") == "connected") {
      const auto node = nodes_.find(node_of(device));
      listener.connected(device, node == nodes_.end() ? "" : node->second.address);
    } else if (event.at("is") == "lost") {
      listener.lost(device, event.at("why").get<std::string>());
    } else if (event.at("is") == "message") {
      listener.received(device, event.at("message"));
    }
  }
}

}  // namespace adaptdl::sched
