// For tests: a RemoteHost that is connected to replica servers on the same machine.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "local/base/line_channel.h"
#include "local/replica/remote_host.h"
#include "temporary_directory.h"

namespace remote_host_support {

using namespace adaptdl;
using namespace adaptdl::sched;
using namespace std::chrono_literals;
using nlohmann::json;

// Connects a host to replica servers that run on the same machine, in a directory of their own.
class DirectLinks final : public ReplicaLinks {
 public:
  ~DirectLinks() override {
    for (auto& [device, server] : servers_) {
      server.channel.reset();
      ::waitpid(server.pid, nullptr, 0);
    }
  }

  void connect(const std::string& device) {
    Pipe to = make_pipe(), from = make_pipe();
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, to.read.get(), 0);
    ::posix_spawn_file_actions_adddup2(&actions, from.write.get(), 1);
    ::posix_spawn_file_actions_addchdir_np(&actions, directory().c_str());
    char* arguments[] = {const_cast<char*>("replica-server"), nullptr};
    pid_t pid = -1;
    REQUIRE(::posix_spawn(&pid, ADAPTDL_REPLICA_SERVER, &actions, nullptr, arguments, environ) == 0);
    ::posix_spawn_file_actions_destroy(&actions);
    servers_[device] = {pid, std::make_unique<LineChannel>(std::move(from.read), std::move(to.write)), false};
  }
  // Closes the channel, and returns the exit code of the server.
  int disconnect(const std::string& device) {
    Server& server = servers_.at(device);
    server.channel.reset();
    int status = 0;
    ::waitpid(server.pid, &status, 0);
    servers_.erase(device);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const std::filesystem::path& directory() const { return directory_.path(); }
  pid_t pid(const std::string& device) const { return servers_.at(device).pid; }

  void send(const std::string& device, const json& message) override {
    if (const auto found = servers_.find(device); found != servers_.end()) found->second.channel->send(message);
  }
  void add_to(std::vector<pollfd>& polled, bool) const override {
    for (const auto& [device, server] : servers_) server.channel->add_to(polled);
  }
  void receive(Listener& listener) override {
    for (auto at = servers_.begin(); at != servers_.end();) {
      const std::string& device = at->first;
      Server& server = at->second;
      if (!std::exchange(server.known, true)) listener.connected(device, "127.0.0.1");
      server.channel->write();
      if (server.channel->receive([&](const json& message) { listener.received(device, message); })) {
        ++at;
        continue;
      }
      listener.lost(device, "its server has ended");
      ::waitpid(server.pid, nullptr, 0);
      at = servers_.erase(at);
    }
  }

 private:
  struct Server {
    pid_t pid = -1;
    std::unique_ptr<LineChannel> channel;
    bool known = false;
  };
  ::testing::TemporaryDirectory directory_;
  std::map<std::string, Server> servers_;
};

struct Lines final : LaunchObserver {
  std::map<int, std::string> out, err;  // by rank
  std::vector<std::string> notices;

  void line(int rank, Stream stream, std::string_view text, bool ends) override {
    auto& lines = stream == Stream::kOut ? out : err;
    lines[rank] += std::string(text) + (ends ? "\n" : "");
  }
  void notice(std::string_view text) override { notices.emplace_back(text); }
  void progress(const json&) override {}
  void tick() override {}
  int output_fd() const override { return -1; }
  void write_output() override {}
  bool congested() const override { return false; }
  bool output_closed() const override { return false; }
};

struct Scene {
  LaunchPlan plan;
  Lines lines;
  DirectLinks links;
  RemoteHost host{plan, lines, links};
  std::map<int, std::vector<json>> reports;  // by number
  std::map<int, ReplicaEnd> ends;            // by number
  std::vector<std::unique_ptr<Replica>> replicas;

  // If `checkpoints` is given, checkpoints are copied from and to that directory.
  Scene(const std::string& script, const std::vector<std::string>& devices,
        const std::optional<std::filesystem::path>& checkpoints = {})
      : plan(make_plan(script, checkpoints)) {
    ::signal(SIGPIPE, SIG_IGN);  // as the launcher does
    for (const std::string& device : devices) links.connect(device);
    REQUIRE(eventually([&] { return host.devices() == devices; }));
    host.begin();
  }

  static LaunchPlan make_plan(const std::string& script, const std::optional<std::filesystem::path>& checkpoints) {
    LaunchPlan plan;
    plan.program = "/bin/bash";
    plan.arguments = {"bash", "-c", script};
    plan.grace = 60s;
    plan.device_kind = DeviceKind::kCpu;
    plan.checkpoints = checkpoints;
    plan.copies_checkpoints = checkpoints.has_value();
    return plan;
  }

  // Handles events until `condition` holds. Returns false after a minute.
  template <typename Condition>
  bool eventually(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    for (;;) {
      host.read();
      for (const auto& replica : replicas) {
        if (auto end = replica->take_end()) ends[replica->number()] = *end;
      }
      if (condition()) return true;
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::vector<pollfd> polled;
      host.add_to(polled, true);
      ::poll(polled.data(), polled.size(), 100);
    }
  }

  Replica& start(int number, const std::string& device, int rank, int generation = 0) {
    const ReplicaPlace place{.rank = rank,
                             .size = 2,
                             .master_host = "127.0.0.1",
                             .master_port = 1,
                             .device = device,
                             .generation = generation};
    const auto on_report = [this](const Replica& replica, const json& report) {
      reports[replica.number()].push_back(report);
    };
    replicas.push_back(host.start(number, place, on_report));
    return *replicas.back();
  }
};

}  // namespace remote_host_support
