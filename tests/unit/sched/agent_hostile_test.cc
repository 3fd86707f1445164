// Tests the agent, as a real process, with other users, invalid messages and idle connections.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../runtime/process_support.h"
#include "agent_support.h"
#include "base/fd.h"

namespace agent_hostile_test {

using namespace agent_support;
using adaptdl::testing::Process;

namespace {

adaptdl::Fd raw_connection(const Home& home) {
  adaptdl::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
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
  const adaptdl::Fd fd = raw_connection(home);
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
      const adaptdl::Fd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
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
  // Other users are rejected even if the directory and the socket are open to all. On a busy machine, a run that is
  // waiting for its agent starts a second agent, which restricts access to the directory again before it finds the
  // first one.
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
    return fmt::format(R"({{"id":"a","seen":0,"fairness":-1,"run":{{{}}}}})", run_part) + "\n";
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
      {replaced("\"min\":1", "\"min\":0"), "field 'min' must be an integer from 1 to 4096"},
      {replaced("\"max\":1", "\"max\":1e99"), "field 'max' must be an integer from 1 to 4096"},
      {replaced("[\"0\"]", "[\"0\",\"0\"]"), "field 'devices' must be a list of distinct device names"},
      {replaced("\"hints\":{}", "\"hints\":{\"x\":1}"), "unknown scheduling hint 'x'"},
      {replaced("\"submitted\":0", "\"submitted\":1e999"), "the message is not valid JSON"},
      {replaced("\"hints\":{}", "\"hints\":{},\"weight\":0"), "field 'weight' must be a number from 0.001 to 1000"},
      {replaced("\"hints\":{}", "\"hints\":{},\"weight\":\"1\""), "field 'weight' must be a number"},
      {replaced("\"hints\":{}", "\"hints\":{},\"preferred\":2"), "field 'preferred' must be an integer from 1 to 1"},
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

TEST_CASE("idle connections do not prevent a run from connecting" * doctest::test_suite("slow")) {
  Home home({.silent = 500ms});
  Run run(home, request(1, 2));
  REQUIRE(await({&run}, [&] { return run.devices.size() == 2; }));
  std::vector<adaptdl::Fd> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(raw_connection(home));
  Run late(home, request(1, 2));
  REQUIRE(await({&run, &late}, [&] { return late.devices.size() == 2; }));
  CHECK(run.devices.size() == 2);
}

}  // namespace agent_hostile_test
