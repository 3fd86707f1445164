#include "local/replica/remote_host.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "golden.h"
#include "local/base/line_channel.h"
#include "local/replica/replica_wire.h"
#include "remote_host_support.h"

namespace remote_host_test {

using namespace remote_host_support;

namespace {

// Returns whether the process exists and is not a zombie (an ended process that its parent has not reaped yet).
bool lives(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text.at(name_end + 2) != 'Z';
}

}  // namespace

TEST_CASE("replicas on two nodes get their ranks, and all of their output arrives before their exit status") {
  Scene scene(
      R"(echo rank $ADAPTDL_REPLICA_RANK of $ADAPTDL_NUM_REPLICAS >&2; echo '{"step": 3}' >&$ADAPTDL_STATUS_FD;
         printf 'a\xffb\nopen'; exit $((ADAPTDL_REPLICA_RANK * 7)))",
      {"a", "b"});
  Replica& first = scene.start(0, "a", 1);
  Replica& second = scene.start(1, "b", 0);
  REQUIRE(scene.eventually([&] { return first.gone() && second.gone(); }));
  CHECK(scene.lines.out[0] ==
        "a\xff"
        "b\nopen\n");
  CHECK(scene.lines.out[1] == scene.lines.out[0]);
  CHECK(scene.lines.err[1] == "rank 1 of 2\n");
  CHECK(scene.reports[0] == std::vector<json>{{{"step", 3}}});
  CHECK(scene.ends[0].status == ExitStatus{.signalled = false, .code = 7});
  CHECK(scene.ends[0].rank == 1);
  CHECK(is_failure(scene.ends[0]));
  CHECK_FALSE(is_failure(scene.ends[1]));
  CHECK(std::ranges::count(scene.ends[0].last_lines, "rank 1 of 2") == 1);
}

TEST_CASE("a remote replica is asked to save a checkpoint or stop only once it handles the signals") {
  Scene scene(
      R"(sleep 0.2; trap 'echo saved' USR1; trap 'echo stopping; exit 143' TERM; echo ready; while :; do sleep 0.02; done)",
      {"a"});
  Replica& replica = scene.start(0, "a", 0);
  CHECK(replica.is_starting());
  CHECK_FALSE(replica.handles_stop());
  CHECK_FALSE(replica.ask_to_save());
  replica.ask_to_stop_when_ready();
  REQUIRE(scene.eventually([&] { return replica.ask_to_save(); }));
  REQUIRE(scene.eventually([&] { return scene.lines.out[0].find("saved") != std::string::npos; }));
  CHECK(replica.handles_stop());
  replica.ask_to_stop_when_ready();
  REQUIRE(scene.eventually([&] { return replica.gone(); }));
  CHECK(scene.lines.out[0] == "ready\nsaved\nstopping\n");
  CHECK(scene.ends[0].status == ExitStatus{.signalled = false, .code = 143});
  CHECK(scene.ends[0].asked);
}

TEST_CASE("killing a remote replica also kills the processes that it started") {
  for (const bool all : {false, true}) {
    Scene scene("sleep 1000 & echo $!; wait", {"a"});
    Replica& replica = scene.start(0, "a", 0);
    REQUIRE(scene.eventually([&] { return !scene.lines.out[0].empty(); }));
    const pid_t child = std::stoi(scene.lines.out[0]);
    CHECK(lives(child));
    all ? scene.host.kill_all() : replica.kill(true);
    REQUIRE(scene.eventually([&] { return replica.gone(); }));
    CHECK_FALSE(lives(child));
    CHECK(scene.ends[0].status == ExitStatus{.signalled = true, .code = SIGKILL});
    CHECK(scene.ends[0].hung == !all);
    CHECK(is_failure(scene.ends[0]) == !all);
  }
}

TEST_CASE("a program that a node cannot start fails its replica with the reason") {
  Scene missing("", {});
  missing.plan.program = "/nonexistent/program";
  missing.links.connect("a");
  REQUIRE(missing.eventually([&] { return missing.host.devices().size() == 1; }));
  Replica& replica = missing.start(0, "a", 0);
  REQUIRE(missing.eventually([&] { return replica.gone(); }));
  CHECK(is_failure(missing.ends[0]));
  CHECK(describe_end(missing.ends[0]).find("could not be started: ") == 0);
  CHECK(describe_end(missing.ends[0]).find("/nonexistent/program") != std::string::npos);
}

TEST_CASE("when a node's server dies, its replicas are killed and reported as lost, and the others continue") {
  Scene scene("echo $$; sleep 1000", {"a", "b"});
  Replica& lost = scene.start(0, "a", 0);
  Replica& other = scene.start(1, "b", 1);
  REQUIRE(scene.eventually([&] { return !scene.lines.out[0].empty() && !scene.lines.out[1].empty(); }));
  ::kill(scene.links.pid("a"), SIGKILL);
  REQUIRE(scene.eventually([&] { return lost.gone(); }));
  CHECK_GOLDEN(describe_end(scene.ends[0]));
  CHECK(is_failure(scene.ends[0]));
  CHECK(scene.ends[0].lost);
  CHECK(scene.host.devices() == std::vector<std::string>{"b"});
  CHECK(scene.host.address("a").empty());
  CHECK_THROWS_AS(scene.start(2, "a", 0), Error);
  CHECK_THROWS_AS(scene.host.free_port("a"), Error);
  const pid_t process = std::stoi(scene.lines.out[0]);
  CHECK(scene.eventually([&] { return !lives(process); }));
  CHECK_FALSE(other.ended());
  CHECK(lives(std::stoi(scene.lines.out[1])));
  // The same device may be connected again.
  scene.links.connect("a");
  REQUIRE(scene.eventually([&] { return scene.host.devices().size() == 2; }));
  scene.start(3, "a", 2);
  CHECK(scene.eventually([&] { return !scene.lines.out[2].empty(); }));
}

TEST_CASE("a replica server whose connection is closed kills its replicas and exits") {
  Scene scene("trap '' TERM HUP INT; echo $$; while :; do sleep 1; done", {"a"});
  scene.start(0, "a", 0);
  REQUIRE(scene.eventually([&] { return !scene.lines.out[0].empty(); }));
  const pid_t process = std::stoi(scene.lines.out[0]);
  CHECK(scene.links.disconnect("a") == 0);
  CHECK_FALSE(lives(process));
}

TEST_CASE("a replica server that receives an invalid message kills its replicas and exits") {
  Scene scene("echo $$; sleep 1000", {"a"});
  scene.start(0, "a", 0);
  REQUIRE(scene.eventually([&] { return !scene.lines.out[0].empty(); }));
  const pid_t process = std::stoi(scene.lines.out[0]);
  scene.links.send("a", {{"do", "start"}, {"number", "x"}});
  REQUIRE(scene.eventually([&] { return scene.host.devices().empty(); }));
  CHECK(scene.eventually([&] { return !lives(process); }));
}

TEST_CASE("the report of a failure contains the last line even if that line is unfinished") {
  Scene scene("echo first; printf fatal >&2; exit 3", {"a"});
  const Replica& replica = scene.start(0, "a", 0);
  REQUIRE(scene.eventually([&] { return replica.gone(); }));
  CHECK(scene.ends[0].last_lines == std::vector<std::string>{"first", "fatal"});
  CHECK(scene.lines.err[0] == "fatal\n");
}

TEST_CASE("large output and long lines arrive complete" * doctest::test_suite("slow")) {
  Scene scene("head -c 3000000 /dev/zero | tr '\\0' x; echo; seq 30000", {"a"});
  Replica& replica = scene.start(0, "a", 0);
  REQUIRE(scene.eventually([&] { return replica.gone(); }));
  const std::string& out = scene.lines.out[0];
  CHECK(out.find_first_not_of('x') == 3'000'000);
  CHECK(out.size() == 3'000'001 + 168'894);
  CHECK(out.ends_with("\n29999\n30000\n"));
}

TEST_CASE("a node returns a different free port each time") {
  Scene scene("", {"a"});
  const std::uint16_t first = scene.host.free_port("a"), second = scene.host.free_port("a");
  CHECK(first != second);
  CHECK(first > 0);
  CHECK(second > 0);
}

TEST_CASE("launch plans, replica places and replica ends survive serialization") {
  LaunchPlan plan;
  plan.program = "/p";
  plan.arguments = {"p", "--x"};
  plan.job_id = "n/j";
  plan.replicas = 3;
  plan.device_kind = DeviceKind::kCpu;
  plan.settings = {{"A", "1"}, {"A", "2"}};
  plan.grace = 7s;
  plan.checkpoints = "/c";
  plan.share = "/s";
  plan.hang_timeout = 9s;
  const LaunchPlan same = node_plan_from_json(json::parse(node_plan_to_json(plan).dump()));
  const ReplicaPlace place{.rank = 1,
                           .size = 2,
                           .restarts = 3,
                           .master_host = "h",
                           .master_port = 4,
                           .device = "d",
                           .id = "3-1",
                           .generation = 5,
                           .supervisor_url = "http://10.0.0.1:5",
                           .supervisor_token = "t"};
  const Environment expected = replica_environment(plan, {}, place, 6);
  CHECK(replica_environment(same, {}, place_from_json(json::parse(place_to_json(place).dump())), 6) == expected);
  CHECK(same.program == plan.program);
  CHECK(same.arguments == plan.arguments);
  CHECK(same.grace == plan.grace);
  CHECK_FALSE(node_plan_from_json(node_plan_to_json({})).checkpoints);
  ReplicaEnd end;
  end.status = {.signalled = true, .code = 9};
  end.asked = end.out_of_memory = true;
  const ReplicaEnd copy = end_from_json(end_to_json(end));
  CHECK(copy.status == end.status);
  CHECK((copy.asked && copy.out_of_memory && !copy.killed && !copy.hung));
}

TEST_CASE("a channel reports the end of its peer and lines that are not JSON objects") {
  for (const std::string line : {"[1]\n", "{\"a\": 1}\nnonsense\n", ""}) {
    Pipe pipe = make_pipe(), unused = make_pipe();
    LineChannel channel(std::move(pipe.read), std::move(unused.write));
    int received = 0;
    REQUIRE(::write(pipe.write.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()));
    if (line.empty()) {
      CHECK(channel.receive([&](const json&) { ++received; }));
      pipe.write.reset();
    }
    CHECK_FALSE(channel.receive([&](const json&) { ++received; }));
    CHECK(received == (line.starts_with("{") ? 1 : 0));
  }
}

}  // namespace remote_host_test
