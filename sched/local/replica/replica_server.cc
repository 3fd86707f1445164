#include "local/replica/replica_server.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "adaptdl/error.h"
#include "local/base/line_channel.h"
#include "local/replica/local_host.h"
#include "local/replica/node_checkpoints.h"
#include "local/replica/replica_wire.h"

namespace adaptdl::sched {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr auto kReportSignals = std::chrono::milliseconds(100);
// More output than this is pending only if replicas are stopping and the launcher does not read; the rest is dropped.
constexpr std::size_t kMaxPending = std::size_t{64} << 20;  // bytes

// Sends the replicas' output. Here, a replica's rank is its number, which does not change.
class Forwarder final : public LaunchObserver {
 public:
  explicit Forwarder(LineChannel& channel) : channel_(channel) {}

  void line(int number, Stream stream, std::string_view text, bool ends) override {
    if (channel_.pending() > kMaxPending) return;
    json message = {{"is", "output"}, {"number", number}, {"error", stream == Stream::kErr}, {"ends", ends}};
    put_text(message, text);
    channel_.send(message);
  }
  void notice(std::string_view) override {}
  void progress(const json&) override {}
  void tick() override {}
  int output_fd() const override { return -1; }
  void write_output() override {}
  bool congested() const override { return channel_.congested(); }
  bool output_closed() const override { return false; }

 private:
  LineChannel& channel_;
};

class ReplicaServer {
 public:
  // `checkpoints` is null if the nodes share the checkpoint directory. The arguments must outlive this object.
  ReplicaServer(LineChannel& channel, const LaunchPlan& plan, NodeCheckpoints* checkpoints)
      : channel_(channel), plan_(plan), checkpoints_(checkpoints), forwarder_(channel), host_(plan, forwarder_) {
    host_.begin();
    send_port();
  }

  void handle(const json& message) {
    const auto what = message.at("do").get<std::string>();
    if (what == "begin") return begin();
    if (what == "port") return send_port();
    if (what == "checkpoint" && checkpoints_ != nullptr) return checkpoints_->take(message);
    if (what == "kill_all") {
      holds_ends_ = false;
      return host_.kill_all();
    }
    const int number = message.at("number").get<int>();
    if (what == "start") return start(number, place_from_json(message.at("place")));
    const auto found = replicas_.find(number);
    if (found == replicas_.end()) return;  // it is already gone
    Replica& replica = *found->second.replica;
    if (what == "stop") {
      if (checkpoints_ != nullptr) checkpoints_->send_only_newest();
      return replica.ask_to_stop();
    }
    if (what == "kill") {
      holds_ends_ = false;
      return replica.kill(message.at("hung").get<bool>());
    }
    if (what == "save") replica.ask_to_save();
  }

  // Waits for events, and handles all of them except messages.
  void step() {
    std::vector<pollfd> polled;
    channel_.add_to(polled);
    host_.add_to(polled, !channel_.congested());
    ::poll(polled.data(), polled.size(), static_cast<int>(host_.wait_limit().count()));
    channel_.write();
    host_.read();
    take_ends();
    send_ends();
    host_.tick();
    take_gone();
    report_handled_signals();
  }

  // Kills all replicas, and waits until they are gone.
  void kill_all() {
    holds_ends_ = false;
    host_.kill_all();
    for (const auto deadline = Clock::now() + kKillWait; !replicas_.empty(); step()) {
      if (Clock::now() > deadline) throw Error(fmt::format("cannot kill {} of the replicas", replicas_.size()));
    }
  }

 private:
  struct Entry {
    std::unique_ptr<Replica> replica;
    json handles;  // as last sent
  };

  void begin() {
    if (checkpoints_ != nullptr) checkpoints_->begin();
    host_.begin();
  }

  void start(int number, ReplicaPlace place) {
    // The driver has limited this process to the device's GPU. `place.device` is the device's name in the cluster.
    if (plan_.device_kind == DeviceKind::kGpu) place.device.clear();
    holds_ends_ = checkpoints_ != nullptr;
    const auto on_report = [this](const Replica& replica, const json& report) {
      json message = {{"is", "report"}, {"number", replica.number()}, {"report", report}};
      const bool saved = report.value("event", json()) == "checkpoint" && report.value("path", json()).is_string();
      if (saved && checkpoints_ != nullptr)
        return checkpoints_->saved(report["path"].get<std::string>(), std::move(message));
      channel_.send(message);
    };
    try {
      auto replica = host_.start(number, place, on_report);
      replica->set_rank(number);
      replicas_[number] = {std::move(replica), {}};
    } catch (const Error& error) {
      channel_.send({{"is", "refused"}, {"number", number}, {"why", error.what()}});
    }
  }

  void take_ends() {
    std::vector<ReplicaEnd> ends;
    for (auto& [number, entry] : replicas_) {
      if (auto end = entry.replica->take_end()) ends.push_back(std::move(*end));
    }
    order_simultaneous(ends);
    ends_.insert(ends_.end(), ends.begin(), ends.end());
    if (holds_ends_ && !ends.empty()) checkpoints_->send_unreported();
  }

  // Reports the ends of replicas once the RemoteHost has the checkpoints that the replicas saved.
  void send_ends() {
    if (holds_ends_ && checkpoints_->sending() && std::ranges::none_of(ends_, is_failure)) return;
    for (const ReplicaEnd& end : std::exchange(ends_, {}))
      channel_.send({{"is", "ended"}, {"number", end.number}, {"end", end_to_json(end)}});
  }

  void take_gone() {
    if (!ends_.empty()) return;
    std::erase_if(replicas_, [this](const auto& entry) {
      if (!entry.second.replica->gone()) return false;
      channel_.send({{"is", "gone"}, {"number", entry.first}});
      return true;
    });
  }

  void report_handled_signals() {
    if (Clock::now() - reported_ < kReportSignals) return;
    reported_ = Clock::now();
    for (auto& [number, entry] : replicas_) {
      const Replica& replica = *entry.replica;
      if (replica.ended()) continue;
      json handles = {{"is", "handles"},
                      {"number", number},
                      {"stop", replica.handles_stop()},
                      {"save", replica.handles_save()},
                      {"starting", replica.is_starting()}};
      if (handles == entry.handles) continue;
      channel_.send(handles);
      entry.handles = std::move(handles);
    }
  }

  void send_port() { channel_.send({{"is", "port"}, {"port", host_.free_port("")}}); }

  LineChannel& channel_;
  const LaunchPlan& plan_;
  NodeCheckpoints* const checkpoints_;
  bool holds_ends_ = false;  // until the checkpoints have been sent; false once a replica was killed
  Forwarder forwarder_;
  LocalHost host_;
  std::map<int, Entry> replicas_;
  std::vector<ReplicaEnd> ends_;  // not sent yet
  Clock::time_point reported_{};
};

}  // namespace

int serve_replicas(Fd in, Fd out) {
  // A terminal or a node's service manager may signal the whole process group, but only the RemoteHost decides when
  // replicas stop.
  for (const int number : {SIGHUP, SIGINT, SIGPIPE}) ::signal(number, SIG_IGN);
  LineChannel channel(std::move(in), std::move(out));
  std::optional<LaunchPlan> plan;
  std::optional<NodeCheckpoints> checkpoints;
  std::optional<ReplicaServer> server;
  const auto take = [&](const json& message) {
    if (server) return server->handle(message);
    plan = node_plan_from_json(message.at("plan"));
    if (plan->copies_checkpoints) {
      checkpoints.emplace(channel, std::filesystem::current_path());
      plan->checkpoints = checkpoints->directory();
    }
    server.emplace(channel, *plan, checkpoints ? &*checkpoints : nullptr);
  };
  while (channel.receive(take)) {
    server ? server->step() : channel.wait(kKillWait);
  }
  if (server) server->kill_all();
  return 0;
}

}  // namespace adaptdl::sched
