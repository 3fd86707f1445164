#include "local/devices/cluster_relay.h"

#include <doctest/doctest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adaptdl/error.h"
#include "agent_home.h"
#include "error_of.h"
#include "golden.h"

namespace cluster_relay_test {

using namespace adaptdl;
using namespace adaptdl::sched;
using namespace std::chrono_literals;
using nlohmann::json;
using Devices = std::vector<std::string>;

namespace {

struct Recorder final : ReplicaLinks::Listener {
  std::vector<std::string> events;

  void connected(const std::string& device, const std::string& address) override {
    events.push_back("connected " + device + " " + address);
  }
  void received(const std::string& device, const json& message) override {
    events.push_back("received " + device + " " + message.dump());
  }
  void lost(const std::string& device, const std::string& why) override {
    events.push_back("lost " + device + ": " + why);
  }
};

// The driver's end of a relay. Relays with the same home share its agent.
struct Scene {
  std::shared_ptr<::testing::AgentHome> home;
  LaunchPlan plan;
  Pipe to = make_pipe(), from = make_pipe();
  LineChannel driver{Fd(std::exchange(from.read, Fd()).release()), Fd(std::exchange(to.write, Fd()).release())};
  std::optional<RunSize> size;
  DeviceTime device_time;
  std::optional<ClusterRelay> relay;
  std::deque<json> requests;  // of the relay
  Recorder recorder;

  Scene(int min, int max, std::chrono::milliseconds rescale_timeout = 60s)
      : Scene(std::make_shared<::testing::AgentHome>(), min, max, rescale_timeout) {}
  Scene(std::shared_ptr<::testing::AgentHome> home_, int min, int max, std::chrono::milliseconds rescale_timeout = 60s)
      : home(std::move(home_)) {
    plan.elastic = true;
    plan.min_replicas = min;
    plan.replicas = max;
    plan.device_kind = DeviceKind::kCpu;
    plan.relay = Relay{.in = to.read.release(),
                       .out = from.write.release(),
                       .address = "127.0.0.1",
                       .rescale_timeout = rescale_timeout};
    size.emplace(plan);
    relay.emplace(plan, *size, device_time, ADAPTDL_AGENT);
  }

  void nodes(const std::vector<json>& nodes) { driver.send({{"is", "nodes"}, {"nodes", nodes}}); }
  static json node(const std::string& id, int devices, bool leaving = false) {
    return {{"id", id}, {"address", "10.0.0." + id}, {"devices", devices}, {"leaving", leaving}};
  }
  // Lets the relay handle all events until `condition` holds. Returns false after a minute.
  template <typename Condition>
  bool eventually(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    for (;;) {
      relay->take();
      relay->receive(recorder);
      driver.receive([this](const json& message) { requests.push_back(message); });
      if (condition()) return true;
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::vector<pollfd> polled = {{relay->fd(), POLLIN, 0}};
      driver.add_to(polled);
      ::poll(polled.data(), polled.size(), 20);
    }
  }
  // Returns the sorted devices of all requests to do `what` so far, and forgets these requests.
  Devices take(const std::string& what) {
    Devices devices;
    for (const json& request : requests) {
      if (request.at("do") == what && request.contains("device")) devices.push_back(request["device"]);
    }
    std::erase_if(requests, [&](const json& request) { return request.at("do") == what; });
    std::ranges::sort(devices);
    return devices;
  }
  // Connects all devices that the relay opens, until it has allocated `count`.
  bool connect(std::size_t count) {
    return eventually([&] {
      for (const std::string& device : take("open")) driver.send({{"is", "connected"}, {"device", device}});
      return relay->has_devices() && size->target().devices.size() == count;
    });
  }
  Devices allocated() const {
    Devices devices = size->target().devices;
    std::ranges::sort(devices);
    return devices;
  }
};

}  // namespace

TEST_CASE("a run waits for devices and then uses up to its maximum number of replicas") {
  Scene scene(1, 3);
  scene.nodes({});
  REQUIRE(scene.eventually([&] { return !scene.requests.empty(); }));
  CHECK(scene.requests.front() == json{{"do", "want"}, {"devices", 3}});
  CHECK(scene.relay->must_wait());
  CHECK_FALSE(scene.relay->reason().empty());
  scene.nodes({Scene::node("1", 2), Scene::node("2", 2)});
  REQUIRE(scene.connect(3));
  CHECK_FALSE(scene.relay->must_wait());
  for (const std::string& device : scene.allocated())
    CHECK(std::ranges::count(scene.recorder.events, "connected " + device + " 10.0.0." + device.substr(0, 1)) == 1);
}

TEST_CASE("devices of a leaving node are deallocated at once and closed when no longer in use") {
  Scene scene(1, 2);
  scene.nodes({Scene::node("1", 1), Scene::node("2", 1)});
  REQUIRE(scene.connect(2));
  scene.relay->set_used({"1/0", "2/0"}, false);
  scene.nodes({Scene::node("1", 1, true), Scene::node("2", 1)});
  REQUIRE(scene.eventually([&] { return scene.allocated() == Devices{"2/0"}; }));
  CHECK(scene.take("close").empty());
  scene.relay->set_used({"2/0"}, false);
  REQUIRE(scene.eventually([&] { return scene.take("close") == Devices{"1/0"}; }));
  CHECK(scene.recorder.events.back() == "lost 1/0: its device was released");
}

TEST_CASE("a lost device leaves the allocation at once and is reopened" * doctest::test_suite("slow")) {
  Scene scene(1, 2);
  scene.nodes({Scene::node("1", 1), Scene::node("2", 1)});
  REQUIRE(scene.connect(2));
  scene.driver.send({{"is", "lost"}, {"device", "2/0"}, {"why", "its actor has died"}});
  REQUIRE(scene.eventually([&] { return scene.allocated() == Devices{"1/0"}; }));
  CHECK(scene.recorder.events.back() == "lost 2/0: its actor has died");
  scene.take("open");
  REQUIRE(scene.connect(2));
  for (const char* device : {"1/0", "2/0"})
    scene.driver.send({{"is", "lost"}, {"device", device}, {"why", "its actor has died"}});
  REQUIRE(scene.eventually([&] { return !scene.relay->has_devices(); }));
  CHECK(scene.relay->must_wait());
  REQUIRE(scene.connect(2));
}

TEST_CASE("messages to and from connected replica servers are relayed, and others are dropped") {
  Scene scene(1, 1);
  scene.nodes({Scene::node("1", 1)});
  REQUIRE(scene.connect(1));
  scene.relay->send("1/0", {{"do", "port"}});
  scene.relay->send("9/0", {{"do", "port"}});  // not connected
  scene.driver.send({{"is", "message"}, {"device", "1/0"}, {"message", {{"is", "port"}, {"port", 7}}}});
  scene.driver.send({{"is", "message"}, {"device", "9/0"}, {"message", {{"is", "port"}, {"port", 7}}}});
  const std::string received = R"(received 1/0 {"is":"port","port":7})";
  REQUIRE(scene.eventually([&] { return scene.recorder.events.back() == received; }));
  REQUIRE(scene.eventually([&] { return scene.take("send") == Devices{"1/0"}; }));
  CHECK(scene.recorder.events.size() == 2);
}

TEST_CASE("a program that must be restarted to grow gets the devices of several new nodes together" *
          doctest::test_suite("slow")) {
  Scene scene(1, 3);
  scene.nodes({Scene::node("1", 1)});
  REQUIRE(scene.connect(1));
  scene.nodes({Scene::node("1", 1), Scene::node("2", 1)});
  const auto until = std::chrono::steady_clock::now() + 500ms;
  scene.eventually([&] { return std::chrono::steady_clock::now() > until; });
  CHECK(scene.take("open").empty());
  scene.nodes({Scene::node("1", 1), Scene::node("2", 1), Scene::node("3", 1)});
  REQUIRE(scene.eventually([&] { return !scene.take("open").empty(); }));
}

TEST_CASE("a program that must be restarted to grow waits for more nodes only for a limited time") {
  Scene scene(1, 3, 100ms);
  scene.nodes({Scene::node("1", 1)});
  REQUIRE(scene.connect(1));
  scene.nodes({Scene::node("1", 1), Scene::node("2", 1)});
  REQUIRE(scene.connect(2));
}

TEST_CASE("a program that can grow while it runs gets the devices of each new node immediately") {
  Scene scene(1, 3);
  scene.nodes({Scene::node("1", 1)});
  REQUIRE(scene.connect(1));
  scene.relay->set_hints({{"liveRescale", true}});
  scene.nodes({Scene::node("1", 1), Scene::node("2", 1)});
  REQUIRE(scene.connect(2));
}

TEST_CASE("runs share the devices of a cluster, and a run gets those that another run released") {
  Scene first(1, 4);
  const std::vector<json> nodes = {Scene::node("1", 2), Scene::node("2", 2)};
  first.nodes(nodes);
  REQUIRE(first.connect(4));
  first.relay->set_used(first.allocated(), false);
  // Lets each run use the devices it has and release those it must, until each of them has `devices` devices.
  const auto share = [](std::vector<Scene*> scenes, std::size_t devices) {
    return scenes.front()->eventually([&] {
      for (Scene* scene : scenes) {
        scene->relay->take();
        scene->relay->receive(scene->recorder);
        scene->driver.receive([scene](const json& message) { scene->requests.push_back(message); });
        for (const std::string& device : scene->take("open"))
          scene->driver.send({{"is", "connected"}, {"device", device}});
        if (scene->relay->has_devices()) scene->relay->set_used(scene->allocated(), false);
      }
      return std::ranges::all_of(scenes, [devices](const Scene* scene) {
        return scene->relay->has_devices() && scene->allocated().size() == devices;
      });
    });
  };
  {
    Scene second(first.home, 1, 4);
    second.nodes(nodes);
    REQUIRE(share({&first, &second}, 2));
    Devices all = first.allocated();
    for (const std::string& device : second.allocated()) all.push_back(device);
    std::ranges::sort(all);
    CHECK(all == Devices{"1/0", "1/1", "2/0", "2/1"});
  }
  REQUIRE(share({&first}, 4));
}

TEST_CASE("a run fails when the cluster's driver has exited") {
  Scene scene(1, 1);
  scene.driver = LineChannel(Fd(make_pipe().read.release()), Fd(make_pipe().write.release()));
  CHECK_GOLDEN(::testing::error_of([&] { scene.eventually([] { return false; }); }));
}

}  // namespace cluster_relay_test
