// Tests the agent as a real process, with clients that act as runs.
#include "local/devices/agent.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "../runtime/process_support.h"
#include "agent_home.h"
#include "local/base/runtime_directory.h"
#include "local/devices/agent_client.h"
#include "local/devices/agent_message.h"

namespace agent_test {

using namespace adaptdl::sched;
using namespace std::chrono_literals;
using adaptdl::testing::Process;
using Home = ::testing::AgentHome;
using Devices = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto kPatience = 60s;

// Returns whether the process is gone, or is a zombie.
bool ended(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  return !std::getline(file, text) || text.substr(text.rfind(')') + 2, 1) == "Z";
}

AgentRequest request(int min, int max, int devices = 4) {
  AgentRequest request;
  request.name = "run";
  request.min = min;
  request.max = max;
  request.kind = "cpu";
  for (int i = 0; i < devices; ++i) request.devices.push_back(std::to_string(i));
  return request;
}

const AgentOptions kOptions{.program = ADAPTDL_AGENT};

// A run that uses the devices it is allocated and releases all others, immediately if `prompt` is set.
struct Run {
  Run(Home& home_, AgentRequest wanted_) : home(home_), wanted(std::move(wanted_)), client(wanted, kOptions) {}

  void heed() {
    wanted.held = devices;
    client.update(wanted);
  }
  void take() {
    if (auto allocation = client.take()) {
      ++allocations;
      devices = allocation->devices;
      reason = allocation->reason;
      if (prompt) heed();
    }
    if (const auto pid = client.agent_pid()) home.agents.insert(*pid);
  }

  Home& home;
  AgentRequest wanted;
  AgentClient client;
  bool prompt = true;
  int allocations = 0;
  Devices devices;
  std::string reason;
};

// Serves the runs until the condition holds. Returns false if it does not hold within kPatience.
bool await(std::vector<Run*> runs, const std::function<bool()>& so) {
  const auto deadline = Clock::now() + kPatience;
  while (!so()) {
    std::vector<pollfd> readable;
    for (const Run* run : runs) readable.push_back({run->client.fd(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    ::poll(readable.data(), readable.size(), static_cast<int>(std::min<std::int64_t>(left.count(), 100)));
    for (Run* run : runs) run->take();
  }
  return true;
}

Fd raw_connection(const Home& home) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  home.socket().string().copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  timeval patience{60, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return fd;
}

// Returns everything that the agent sends in response until it closes the connection.
std::string answer_to(const Home& home, const std::string& bytes) {
  const Fd fd = raw_connection(home);
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = ::send(fd.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) break;
    sent += static_cast<std::size_t>(count);
  }
  std::string answer;
  char buffer[4096];
  ssize_t count;
  while ((count = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0)
    answer.append(buffer, static_cast<std::size_t>(count));
  CHECK((count == 0 || errno == ECONNRESET));
  return answer;
}

}  // namespace

TEST_CASE("the first run starts the agent, which allocates devices and exits when idle") {
  Home home({.idle = 500ms});
  int agent = 0;
  {
    Run run(home, request(1, 4));
    REQUIRE(await({&run}, [&] { return run.devices.size() == 4; }));
    CHECK(run.devices == Devices{"0", "1", "2", "3"});
    CHECK_FALSE(run.reason.empty());
    // On a busy machine, an earlier agent may have exited because it was idle when the run connected.
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
  const Fd agent = listen_at(home.socket());
  DeviceTime time;
  time.hold({"0", "1"}, Clock::now() - 10s);
  AgentOptions options = kOptions;
  options.device_time = &time;
  const AgentClient client(request(1, 4), options);
  const Fd connection = accept_own_user(agent.get());
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

TEST_CASE("a killed agent is restarted, and no run's devices change") {
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
  CHECK(first.reason == "3 devices, as many as preferred");
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
  { const Fd dead = listen_at(home.socket()); }
  REQUIRE(std::filesystem::exists(home.socket()));
  // The lock names a process that is gone and a process that was never a run.
  std::ofstream(directory / kAgentLock) << "999999999 abc\n" << ::getpid() << " def\nnonsense\n";
  Run run(home, request(1, 2));
  REQUIRE(await({&run}, [&] { return run.devices.size() == 2; }));
}

TEST_CASE("other users cannot use the agent") {
  Home home;
  Run run(home, request(1, 2));
  REQUIRE(await({&run}, [&] { return run.devices.size() == 2; }));
  struct stat status {};
  REQUIRE(::stat(home.socket().c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  REQUIRE(::stat(home.socket().parent_path().c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
  if (::geteuid() != 0) return;  // only root can become another user
  const auto as_nobody = [&] {
    Process other(STDOUT_FILENO, [&] {
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 1;
      const Fd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      home.socket().string().copy(address.sun_path, sizeof address.sun_path - 1);
      if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
        return errno == EACCES ? 2 : 1;
      char byte;
      return ::recv(fd.get(), &byte, 1, 0) <= 0 ? 3 : 1;
    });
    return other.join();
  };
  CHECK(as_nobody() == 2);
  // Other users are rejected even if directory and socket are open to all. On a busy machine, a run that is waiting
  // for its agent starts a second one, which restricts the directory again before finding out that it is not needed.
  int reached = 2;
  for (int tries = 0; tries < 20 && reached == 2; ++tries) {
    for (const auto& path : {home.directory.path(), home.socket().parent_path(), home.socket()})
      REQUIRE(::chmod(path.c_str(), 0777) == 0);
    reached = as_nobody();
  }
  CHECK(reached == 3);
}

TEST_CASE("an invalid message is answered with the reason and closes only its own connection") {
  Home home;
  Run run(home, request(1, 2));
  REQUIRE(await({&run}, [&] { return run.devices.size() == 2; }));
  run.allocations = 0;
  const int agent = run.client.agent_pid().value();
  const std::string user = R"("name":"x","kind":"cpu","min":1,"max":1,"devices":["0"],"held":[],"pinned":false,)"
                           R"("submitted":0,"service":0,"changes":0,"hints":{})";
  const auto message = [](const std::string& run_part) {
    return fmt::format(R"({{"id":"a","seen":0,"policy":"adaptive","fairness":-1,"run":{{{}}}}})", run_part) + "\n";
  };
  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string text = message(user);
    return text.replace(text.find(from), from.size(), to);
  };
  const std::pair<std::string, std::string> wrong[] = {
      {"hello\n", "the message is not valid JSON"},
      {"\n", "the message is not valid JSON"},
      {"[]\n", "the message is not a JSON object"},
      {"{}\n", "field 'id' is missing"},
      {std::string(1000, '[') + "\n", "the message is nested too deeply"},
      {std::string((2 << 20), 'x'), "the message is too long"},
      {replaced("\"min\":1", "\"min\":0"), "field 'min' must be a whole number from 1 to 4096"},
      {replaced("\"max\":1", "\"max\":1e99"), "field 'max' must be a whole number from 1 to 4096"},
      {replaced("[\"0\"]", "[\"0\",\"0\"]"), "field 'devices' must be a list of distinct device names"},
      {replaced("\"hints\":{}", "\"hints\":{\"x\":1}"), "unknown scheduling hint 'x'"},
      {replaced("\"submitted\":0", "\"submitted\":1e999"), "the message is not valid JSON"},
      {replaced("\"hints\":{}", "\"hints\":{},\"weight\":0"), "field 'weight' must be a number from 0.001 to 1000"},
      {replaced("\"hints\":{}", "\"hints\":{},\"weight\":\"1\""), "field 'weight' must be a number"},
      {replaced("\"hints\":{}", "\"hints\":{},\"preferred\":2"),
       "field 'preferred' must be a whole number from 1 to 1"},
      {replaced("adaptive", "best"), "unknown policy 'best'"},
      {replaced("\"id\":\"a\"", "\"id\":\"a b\""), "field 'id' must be 1 to 40 letters and digits"},
  };
  for (const auto& [bytes, why] : wrong) {
    const std::string answer = answer_to(home, bytes);
    CHECK_MESSAGE(answer.find(why) != std::string::npos, answer);
    CHECK(std::count(answer.begin(), answer.end(), '\n') == 1);
  }
  run.wanted.max = 3;
  run.client.update(run.wanted);
  REQUIRE(await({&run}, [&] { return run.devices.size() == 3; }));
  CHECK(run.client.agent_pid() == agent);
}

TEST_CASE("idle connections do not prevent a run from connecting") {
  Home home({.silent = 500ms});
  Run run(home, request(1, 2));
  REQUIRE(await({&run}, [&] { return run.devices.size() == 2; }));
  std::vector<Fd> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(raw_connection(home));
  Run late(home, request(1, 2));
  REQUIRE(await({&run, &late}, [&] { return late.devices.size() == 2; }));
  CHECK(run.devices.size() == 2);
}

}  // namespace agent_test
