// Tests the agent as a real process, with clients that act as runs.
#include "local/devices/agent.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../runtime/process_support.h"
#include "agent_support.h"
#include "golden.h"
#include "local/base/runtime_directory.h"
#include "local/devices/agent_client.h"
#include "local/devices/agent_message.h"

namespace agent_test {

using namespace agent_support;
using adaptdl::testing::Process;

namespace {

// Returns whether the process is gone, or is a zombie.
bool ended(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  return !std::getline(file, text) || text.substr(text.rfind(')') + 2, 1) == "Z";
}

}  // namespace

TEST_CASE("the first run starts the agent, which allocates devices and exits when idle" * doctest::test_suite("slow")) {
  Home home({.idle = 500ms});
  int agent = 0;
  {
    Run run(home, request(1, 4));
    REQUIRE(await({&run}, [&] { return run.devices.size() == 4; }));
    CHECK(run.devices == Devices{"0", "1", "2", "3"});
    CHECK_FALSE(run.reason.empty());
    // On a busy machine, this may be a second agent: the first one may have exited as idle before the run connected.
    agent = run.client.agent_pid().value();
    // The agent has its own session, and has inherited no descriptor from this process.
    CHECK(::getsid(agent) != ::getsid(0));
    for (const int fd : {0, 1, 2})
      CHECK(std::filesystem::read_symlink(fmt::format("/proc/{}/fd/{}", agent, fd)) == "/dev/null");
  }
  const auto deadline = Clock::now() + kPatience;
  while (!ended(agent) && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
  CHECK(ended(agent));
  CHECK_FALSE(std::filesystem::exists(home.socket()));
}

TEST_CASE("a run reports its device-seconds as attained service") {
  Home home;
  runtime_directory();
  const adaptdl::Fd agent = listen_at(home.socket());
  DeviceTime time;
  time.hold({"0", "1"}, Clock::now() - 10s);
  AgentOptions options = kOptions;
  options.device_time = &time;
  const AgentClient client(request(1, 4), options);
  const adaptdl::Fd connection = accept_own_user(agent.get());
  REQUIRE(connection);
  char line[4096];
  const ssize_t size = ::recv(connection.get(), line, sizeof line, 0);
  REQUIRE(size > 0);
  CHECK(parse_run_message({line, static_cast<std::size_t>(size)}).user.service >= 20);
}

TEST_CASE("a second run gets its share once the first releases it, and all devices once the first ends") {
  Home home;
  auto first = std::make_unique<Run>(home, request(1, 4));
  REQUIRE(await({first.get()}, [&] { return first->devices.size() == 4; }));
  first->prompt = false;
  Run second(home, request(1, 4));
  REQUIRE(await({first.get(), &second}, [&] { return first->devices.size() == 2 && second.allocations > 0; }));
  CHECK(first->devices == Devices{"0", "1"});
  CHECK(second.devices.empty());
  first->heed();
  REQUIRE(await({first.get(), &second}, [&] { return second.devices.size() == 2; }));
  CHECK(second.devices == Devices{"2", "3"});
  first.reset();
  REQUIRE(await({&second}, [&] { return second.devices.size() == 4; }));
  CHECK(second.devices == Devices{"2", "3", "0", "1"});
}

TEST_CASE("changing a run's bounds changes its share") {
  Home home;
  Run run(home, request(1, 1));
  REQUIRE(await({&run}, [&] { return run.devices.size() == 1; }));
  run.wanted.min = run.wanted.max = 3;
  run.client.update(run.wanted);
  REQUIRE(await({&run}, [&] { return run.devices.size() == 3; }));
  run.wanted.min = run.wanted.max = 2;
  run.client.update(run.wanted);
  REQUIRE(await({&run}, [&] { return run.devices.size() == 2; }));
}

TEST_CASE("a killed agent is restarted, and no run's devices change" * doctest::test_suite("slow")) {
  Home home({.settle = kPatience});
  Run first(home, request(1, 2)), second(home, request(1, 2));
  REQUIRE(await({&first, &second}, [&] { return first.devices.size() == 2 && second.devices.size() == 2; }));
  const Devices of_first = first.devices, of_second = second.devices;
  for (int round = 0; round < 3; ++round) {
    const int killed = first.client.agent_pid().value();
    REQUIRE(::kill(killed, SIGKILL) == 0);
    // A run that connects before the others have reconnected gets none of their devices.
    std::unique_ptr<Run> early;
    if (round == 1) early = std::make_unique<Run>(home, request(3, 4));
    std::vector<Run*> runs{&first, &second};
    if (early) runs.push_back(early.get());
    REQUIRE(await(runs, [&] {
      CHECK(first.devices == of_first);
      CHECK(second.devices == of_second);
      if (early) CHECK(early->devices.empty());
      const auto pid = first.client.agent_pid(), other = second.client.agent_pid();
      return pid && pid == other && *pid != killed && (!early || early->allocations > 0);
    }));
  }
}

TEST_CASE("a restarted agent recovers the weights of the runs") {
  Home home({.settle = kPatience});
  Run light(home, request(1, 4)), heavy(home, request(1, 4));
  heavy.wanted.weight = 3;
  heavy.client.update(heavy.wanted);
  REQUIRE(await({&light, &heavy}, [&] { return light.devices.size() == 1 && heavy.devices.size() == 3; }));
  const int killed = light.client.agent_pid().value();
  REQUIRE(::kill(killed, SIGKILL) == 0);
  REQUIRE(await({&light, &heavy}, [&] {
    const auto pid = light.client.agent_pid();
    return pid && pid == heavy.client.agent_pid() && *pid != killed;
  }));
  // Without the weights, the light run would keep more devices.
  Run third(home, request(1, 1));
  REQUIRE(await({&light, &heavy, &third}, [&] { return third.devices.size() == 1; }));
  CHECK(light.devices.size() == 1);
  CHECK(heavy.devices.size() == 2);
}

TEST_CASE("a run gets its preferred number of devices, but leaves another run its fair share") {
  Home home;
  AgentRequest wanted = request(1, 3);
  wanted.preferred_count = 3;
  Run first(home, wanted);
  REQUIRE(await({&first}, [&] { return first.devices.size() == 3; }));
  CHECK_GOLDEN(first.reason);
  Run second(home, request(1, 4));
  REQUIRE(await({&first, &second}, [&] { return second.devices.size() == 2; }));
  CHECK(first.devices.size() == 2);
}

TEST_CASE("a run keeps its devices while the agent does not respond") {
  Home home;
  Run run(home, request(1, 2));
  REQUIRE(await({&run}, [&] { return run.devices.size() == 2; }));
  const int agent = run.client.agent_pid().value();
  ::kill(agent, SIGSTOP);
  for (int i = 0; i < 5000; ++i) {
    run.wanted.hints = {{"progress", i}};
    run.client.update(run.wanted);
  }
  run.wanted.max = 3;
  run.client.update(run.wanted);
  CHECK(run.devices.size() == 2);
  ::kill(agent, SIGCONT);
  REQUIRE(await({&run}, [&] { return run.devices.size() == 3; }));
  CHECK(run.client.agent_pid() == agent);
}

TEST_CASE("runs that start at the same time share one agent") {
  Home home;
  std::vector<std::unique_ptr<Process>> processes;
  for (int i = 0; i < 8; ++i) {
    processes.push_back(std::make_unique<Process>(STDOUT_FILENO, [&] {
      Run run(home, request(1, 1, 8));
      if (!await({&run}, [&] { return run.devices.size() == 1; })) return 1;
      const std::string line = fmt::format("{} {}\n", run.client.agent_pid().value_or(0), run.devices[0]);
      if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) return 1;
      ::pause();
      return 0;
    }));
  }
  std::set<std::string> devices;
  for (const auto& process : processes) {
    const std::string line = process->line();
    REQUIRE(line.find(' ') != std::string::npos);
    home.agents.insert(std::stoi(line));
    devices.insert(line.substr(line.find(' ')));
  }
  CHECK(home.agents.size() == 1);
  CHECK(devices.size() == 8);
}

TEST_CASE("the devices of a killed run go to other runs") {
  Home home({.vanished = 200ms});
  Process killed(STDOUT_FILENO, [&] {
    Run run(home, request(4, 4));
    if (!await({&run}, [&] { return run.devices.size() == 4; })) return 1;
    if (::write(STDOUT_FILENO, "up\n", 3) < 0) return 1;
    ::pause();
    return 0;
  });
  REQUIRE(killed.line() == "up");
  Run next(home, request(1, 4));
  REQUIRE(await({&next}, [&] { return next.allocations > 0; }));
  CHECK(next.devices.empty());
  killed.signal(SIGKILL);
  REQUIRE(await({&next}, [&] { return next.devices.size() == 4; }));
}

TEST_CASE("a new agent starts despite the stale socket and lock of a dead one") {
  Home home({.settle = 200ms});
  const auto directory = runtime_directory();
  { const adaptdl::Fd dead = listen_at(home.socket()); }
  REQUIRE(std::filesystem::exists(home.socket()));
  // The lock names a process that is gone and a process that was never a run.
  std::ofstream(directory / kAgentLock) << "999999999 abc\n" << ::getpid() << " def\nnonsense\n";
  Run run(home, request(1, 2));
  REQUIRE(await({&run}, [&] { return run.devices.size() == 2; }));
}

}  // namespace agent_test
