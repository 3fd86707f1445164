#include "local/replica/remote_host.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "adaptdl/error.h"
#include "local/replica/out_of_memory.h"
#include "local/replica/replica_wire.h"

namespace adaptdl::sched {

using nlohmann::json;

class RemoteReplica final : public Replica {
 public:
  RemoteReplica(RemoteHost& host, int number, const ReplicaPlace& place, OnReport on_report)
      : Replica(host.plan_, number, place, host.observer_, std::move(on_report)), host_(host), device_(place.device) {
    host_.send_start(device_, {{"do", "start"}, {"number", number}, {"place", place_to_json(place)}},
                     place.generation > 0);
    host_.replicas_.push_back(this);
  }
  ~RemoteReplica() override { std::erase(host_.replicas_, this); }

  const std::string& device() const noexcept { return device_; }
  bool ended() const override { return ended_; }
  bool gone() const override { return ended_ && gone_; }

  std::optional<ReplicaEnd> take_end() override {
    if (!end_ || ended_) return std::nullopt;
    ended_ = true;
    end_->rank = rank();
    if (is_failure(*end_)) {
      end_->last_lines = last_lines();
      end_->out_of_memory = end_->out_of_memory || mentions_out_of_memory(end_->last_lines);
    }
    return end_;
  }

  void ask_to_stop() override {
    if (end_ || std::exchange(asked_, true)) return;
    if (host_.drop_start(device_, number())) return end_unstarted();
    send({{"do", "stop"}});
  }
  bool ask_to_save() override {
    if (!handles_save()) return false;
    send({{"do", "save"}});
    return true;
  }
  bool handles_save() const override { return !end_ && handles_save_; }
  bool is_starting() const override { return !end_ && starting_ && !host_.is_queued(device_, number()); }
  bool handles_stop() const override { return end_ || handles_stop_ || host_.is_queued(device_, number()); }
  void kill(bool hung) override {
    if (!hung) killed_ = true;
    note_kill();
    if (host_.drop_start(device_, number())) return end_unstarted();
    if (!gone_) send({{"do", "kill"}, {"hung", hung}});
  }
  void set_killed() {
    killed_ = true;
    if (host_.drop_start(device_, number())) end_unstarted();
  }

  void take(const json& message) {
    const auto what = message.at("is").get<std::string>();
    if (what == "output") {
      const Stream stream = message.at("error").get<bool>() ? Stream::kErr : Stream::kOut;
      take_output(stream, get_text(message), message.at("ends").get<bool>());
    } else if (what == "report") {
      json report = message.at("report");
      host_.localize(device_, report);
      take_report(report);
    } else if (what == "handles") {
      message.at("stop").get_to(handles_stop_);
      message.at("save").get_to(handles_save_);
      message.at("starting").get_to(starting_);
    } else if (what == "ended") {
      end(end_from_json(message.at("end")));
    } else if (what == "refused") {
      ReplicaEnd refused;
      refused.status.code = kFailedExit;
      refused.how = "could not be started: " + message.at("why").get<std::string>();
      end(std::move(refused));
      gone_ = true;
    } else if (what == "gone") {
      gone_ = true;
    }
  }

  void lose(const std::string& why) {
    if (!end_) {
      ReplicaEnd lost;
      lost.status = {.signalled = true, .code = SIGKILL};
      lost.asked = asked_;
      lost.killed = killed_;
      lost.lost = true;
      lost.how = "was lost: " + why;
      end(std::move(lost));
    }
    gone_ = true;
  }

 private:
  void send(json message) {
    message["number"] = number();
    host_.links_.send(device_, message);
  }
  // Ends the replica, which was asked to stop, or was killed, before its node was asked to start it.
  void end_unstarted() {
    ReplicaEnd unstarted;
    unstarted.status = {.signalled = true, .code = killed_ ? SIGKILL : SIGTERM};
    unstarted.asked = asked_;
    unstarted.killed = killed_;
    end(std::move(unstarted));
    gone_ = true;
  }
  void end(ReplicaEnd end) {
    end_ = std::move(end);
    end_->number = number();
    end_->place = host_.ended_++;
  }

  RemoteHost& host_;
  const std::string device_;
  std::optional<ReplicaEnd> end_;
  bool ended_ = false, gone_ = false;
  bool asked_ = false, killed_ = false;
  bool starting_ = true, handles_stop_ = false, handles_save_ = false;
};

RemoteHost::RemoteHost(const LaunchPlan& plan, LaunchObserver& observer, ReplicaLinks& links)
    : plan_(plan), observer_(observer), links_(links) {
  if (!plan.copies_checkpoints || !plan.checkpoints) return;
  checkpoints_.emplace(
      plan, observer, [this](const std::string& device, const json& message) { links_.send(device, message); },
      [this](const std::string& device, int number, const std::string& why) {
        events_.push_back({device, {{"is", "refused"}, {"number", number}, {"why", why}}, ""});
      });
}

std::vector<std::string> RemoteHost::devices() const {
  std::vector<std::string> names;
  for (const auto& [name, device] : devices_) names.push_back(name);
  return names;
}

std::string RemoteHost::address(const std::string& device) const {
  const auto found = devices_.find(device);
  return found == devices_.end() ? "" : found->second.address;
}

std::uint16_t RemoteHost::free_port(const std::string& device) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + kPortWait;
  for (;;) {
    const auto found = devices_.find(device);
    if (found == devices_.end()) throw Error(fmt::format("device '{}' is not connected", device));
    if (const auto port = std::exchange(found->second.port, std::nullopt)) {
      links_.send(device, {{"do", "port"}});
      return *port;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0)
      throw Error(fmt::format("the node of device '{}' did not answer within {}s", device, kPortWait.count() / 1000));
    std::vector<pollfd> polled;
    links_.add_to(polled, true);
    ::poll(polled.data(), polled.size(), static_cast<int>(std::min(left, wait_limit()).count()));
    links_.receive(*this);
  }
}

void RemoteHost::begin() {
  ended_ = 0;
  for (const auto& [name, device] : devices_) links_.send(name, {{"do", "begin"}});
  if (checkpoints_) checkpoints_->begin();
}

std::unique_ptr<Replica> RemoteHost::start(int number, const ReplicaPlace& place, Replica::OnReport on_report) {
  if (!devices_.contains(place.device)) throw Error(fmt::format("device '{}' is not connected", place.device));
  return std::make_unique<RemoteReplica>(*this, number, place, std::move(on_report));
}

void RemoteHost::send_start(const std::string& device, json start, bool joins) {
  if (checkpoints_) return checkpoints_->start(device, address(device), std::move(start), joins);
  links_.send(device, start);
}

bool RemoteHost::drop_start(const std::string& device, int number) {
  return checkpoints_ && checkpoints_->drop_start(device, number);
}

bool RemoteHost::is_queued(const std::string& device, int number) const {
  return checkpoints_ && checkpoints_->is_queued(device, number);
}

// Replaces the path of a checkpoint on the device's node with the path of its copy on this machine.
void RemoteHost::localize(const std::string& device, json& report) const {
  if (checkpoints_ && report.contains("path") && report.value("event", json()) == "checkpoint")
    report["path"] = checkpoints_->saved(device).string();
}

void RemoteHost::connected(const std::string& device, const std::string& address) {
  devices_[device] = {.address = address, .port = std::nullopt};
  links_.send(device, {{"do", "plan"}, {"plan", node_plan_to_json(plan_)}});
}

// Events are stored until read() handles them, since free_port() also receives events, and it is called while the
// caller is changing the replicas.
void RemoteHost::received(const std::string& device, const json& message) {
  if (message.at("is") == "checkpoint") {
    if (checkpoints_) checkpoints_->take(device, message);
  } else if (message.at("is") == "port") {
    if (const auto found = devices_.find(device); found != devices_.end())
      found->second.port = message.at("port").get<std::uint16_t>();
  } else {
    events_.push_back({device, message, ""});
  }
}

void RemoteHost::lost(const std::string& device, const std::string& why) {
  devices_.erase(device);
  events_.push_back({device, nullptr, why});
  if (checkpoints_) checkpoints_->lost(device);
}

void RemoteHost::read() {
  links_.receive(*this);
  while (!events_.empty()) {
    const Event event = std::move(events_.front());
    events_.pop_front();
    for (RemoteReplica* replica : replicas_) {
      if (replica->device() != event.device || replica->gone()) continue;
      if (event.message.is_null()) {
        replica->lose(event.why);
      } else if (event.message.at("number") == replica->number()) {
        replica->take(event.message);
      }
    }
  }
}

void RemoteHost::kill_all() {
  for (RemoteReplica* replica : replicas_) {
    if (!replica->gone()) replica->set_killed();
  }
  for (const auto& [name, device] : devices_) links_.send(name, {{"do", "kill_all"}});
}

}  // namespace adaptdl::sched
