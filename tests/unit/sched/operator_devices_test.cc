// Tests how devices of dynamic resource allocation are selected and counted.
#include <doctest/doctest.h>

#include "adaptdl/error.h"
#include "golden.h"
#include "operator/cluster/cluster_state.h"
#include "operator/nodes/device_inventory.h"
#include "operator/nodes/device_selector.h"

namespace operator_devices_test {

using namespace adaptdl;
using namespace adaptdl::sched;
using nlohmann::json;

namespace {

constexpr const char* kGpus =
    "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'gpu'";

json gpu(const std::string& name, const std::string& type = "gpu", const std::string& product = "Example A1") {
  return {{"name", name},
          {"attributes",
           {{"type", {{"string", type}}},
            {"productName", {{"string", product}}},
            {"other.example.com/cores", {{"int", 64}}},
            {"healthy", {{"bool", true}}},
            {"driverVersion", {{"version", "1.2.3"}}}}}};
}

json slice(const std::string& name, const std::string& node, const std::vector<json>& devices, int generation = 1) {
  return {{"metadata", {{"name", name}}},
          {"spec",
           {{"driver", "gpu.example.com"},
            {"nodeName", node},
            {"pool", {{"name", node}, {"generation", generation}, {"resourceSliceCount", 1}}},
            {"devices", devices}}}};
}

json device_class(const std::string& name, const std::string& expression, const std::string& extended = "",
                  const std::string& created = "2026-11-21T12:00:00Z") {
  json object{{"metadata", {{"name", name}, {"creationTimestamp", created}}},
              {"spec", {{"selectors", json::array({{{"cel", {{"expression", expression}}}}})}}}};
  if (!extended.empty()) object["spec"]["extendedResourceName"] = extended;
  return object;
}

json claim_template(const std::string& name, const json& request) {
  return {{"metadata", {{"namespace", "ns"}, {"name", name}}},
          {"spec", {{"spec", {{"devices", {{"requests", json::array({request})}}}}}}}};
}

using Places = std::vector<std::pair<std::string, std::string>>;  // pairs of node and device

json claim(const std::string& name, const std::string& pod, const Places& devices) {
  json results = json::array();
  for (const auto& [node, device] : devices)
    results.push_back({{"driver", "gpu.example.com"}, {"pool", node}, {"device", device}, {"request", "gpu"}});
  json object{
      {"metadata", {{"namespace", "ns"}, {"name", name}}},
      {"spec",
       {{"devices", {{"requests", {{{"name", "gpu"}, {"exactly", {{"deviceClassName", "gpu.example.com"}}}}}}}}}},
      {"status", {{"allocation", {{"devices", {{"results", results}}}}}}}};
  if (!pod.empty()) object["metadata"]["ownerReferences"] = {{{"kind", "Pod"}, {"uid", pod}}};
  return object;
}

json node(const std::string& name, const json& allocatable) {
  return {{"metadata", {{"name", name}}},
          {"status", {{"allocatable", allocatable}, {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}};
}

bool selects(const std::string& expression, const json& device = gpu("gpu-0")) {
  return DeviceSelector(expression).matches("gpu.example.com", device);
}

DeviceInventory inventory_of_two_nodes(const std::string& extended = "") {
  DeviceInventory inventory;
  inventory.put(kube::kDeviceClasses, device_class("gpu.example.com", kGpus, extended));
  inventory.put(kube::kResourceSlices, slice("s-a", "a", {gpu("gpu-0"), gpu("gpu-1"), gpu("part-0", "partition")}));
  inventory.put(kube::kResourceSlices, slice("s-b", "b", {gpu("gpu-0")}));
  return inventory;
}

constexpr const char* kClass = "deviceclass.resource.kubernetes.io/gpu.example.com";
constexpr const char* kOnlyDevices = "gpu.example.com (DeviceClass)";
using Owner = DeviceInventory::Owner;

}  // namespace

TEST_CASE("selectors compare a device's driver and attributes") {
  CHECK(selects("device.driver == 'gpu.example.com'"));
  CHECK(selects("device.driver==\"gpu.example.com\""));
  CHECK_FALSE(selects("device.driver == 'other.example.com'"));
  CHECK_FALSE(selects("device.driver != 'gpu.example.com'"));
  CHECK(selects(kGpus));
  CHECK_FALSE(selects(kGpus, gpu("part-0", "partition")));
  CHECK(
      selects("  (device.driver == 'gpu.example.com')\n && (device.attributes['other.example.com'].cores == 64 "
              "&& device.attributes['gpu.example.com'].healthy)\n"));
  CHECK_FALSE(selects("!device.attributes['gpu.example.com'].healthy"));
  CHECK(selects("device.attributes['gpu.example.com'].healthy == true"));
  CHECK_FALSE(selects("device.attributes['other.example.com'].cores == 63"));
  CHECK(selects("device.attributes['other.example.com'].cores != -1"));
}

TEST_CASE("a selector does not match a device that lacks the attribute or has one of another type") {
  CHECK_FALSE(selects("device.attributes['gpu.example.com'].missing == 'x'"));
  CHECK_FALSE(selects("device.attributes['gpu.example.com'].missing != 'x'"));
  CHECK_FALSE(selects("device.attributes['other.example.com'].type == 'gpu'"));
  CHECK_FALSE(selects("device.attributes['gpu.example.com'].type == 1"));
  CHECK_FALSE(selects("device.attributes['gpu.example.com'].driverVersion == '1.2.3'"));
  CHECK_FALSE(selects(kGpus, json::object()));
  CHECK_FALSE(selects(kGpus, {{"attributes", {{"type", "gpu"}}}}));
}

TEST_CASE("an unsupported selector is rejected with the position of the error") {
  const auto fault = [](const std::string& expression) {
    try {
      DeviceSelector selector(expression);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  CHECK_GOLDEN(fault("device.driver == 'a' || device.driver == 'b'"));
  CHECK_GOLDEN(fault(""));
  CHECK_GOLDEN(fault("device.driver"));
  CHECK_GOLDEN(fault("device.driver == 'a"));
  CHECK_GOLDEN(fault("device.driver == 'a\\'b'"));
  CHECK_GOLDEN(fault("(device.driver == 'a'"));
  CHECK_GOLDEN(fault("device.driver == 'a')"));
  CHECK_GOLDEN(fault("devices.driver == 'a'"));
  CHECK_GOLDEN(fault("device.attributes['a'].b in ['c']"));
  CHECK_GOLDEN(fault("device.attributes['a'].b == c"));
  CHECK_GOLDEN(fault("!device.driver == 'a'"));
  CHECK_GOLDEN(fault("!device.attributes['a'].b == true"));
}

TEST_CASE("devices selected by a class count as resources of their node") {
  const DeviceInventory inventory = inventory_of_two_nodes();
  CHECK(inventory.by_node() == std::map<std::string, Resources>{{"a", {{kClass, 2}}}, {"b", {{kClass, 1}}}});
  CHECK(inventory.product("a") == "Example-A1");
  CHECK(inventory.product("c").empty());
}

TEST_CASE("devices of a class with an extended resource count as that resource") {
  const DeviceInventory inventory = inventory_of_two_nodes("example.com/gpu");
  CHECK(inventory.by_node().at("a") == Resources{{"example.com/gpu", 2}, {kOnlyDevices, 2}});
}

TEST_CASE("if several classes share an extended resource, the newest class provides it") {
  DeviceInventory inventory = inventory_of_two_nodes("example.com/gpu");
  const std::string all = "device.driver == 'gpu.example.com'";
  inventory.put(kube::kDeviceClasses, device_class("old", all, "example.com/gpu", "2026-11-20T00:00:00Z"));
  CHECK(inventory.by_node().at("a").at("example.com/gpu") == 2);
  CHECK(inventory.by_node().at("a").at("deviceclass.resource.kubernetes.io/old") == 3);
  inventory.put(kube::kDeviceClasses, device_class("same-time", all, "example.com/gpu"));  // sorts after gpu.…
  CHECK(inventory.by_node().at("a").at("example.com/gpu") == 2);
  inventory.put(kube::kDeviceClasses, device_class("new", all, "example.com/gpu", "2026-11-22T00:00:00Z"));
  CHECK(inventory.by_node().at("a").at("example.com/gpu") == 3);
  CHECK(inventory.by_node().at("a").at(kClass) == 2);
}

TEST_CASE("a node's GPU product is known even if some of its devices have no product name or are not GPUs") {
  DeviceInventory inventory = inventory_of_two_nodes();
  json channel = gpu("channel-0", "channel");
  channel["attributes"].erase("productName");
  const std::vector<json> others{channel, gpu("nic-0", "nic", "Example N1")};
  json slice_of_others = slice("s-a-others", "a", others);
  slice_of_others["spec"]["pool"]["name"] = "a-others";
  inventory.put(kube::kResourceSlices, slice_of_others);
  inventory.put(kube::kDeviceClasses, device_class("all", "device.driver == 'gpu.example.com'"));
  CHECK(inventory.product("a") == "Example-A1");
  CHECK(inventory.by_node().at("a").at("deviceclass.resource.kubernetes.io/all") == 5);
}

TEST_CASE("device counts follow changes and deletions of classes and slices") {
  DeviceInventory inventory = inventory_of_two_nodes();
  inventory.put(kube::kResourceSlices, slice("s-a", "a", {gpu("gpu-0", "gpu", "Example B2"), gpu("gpu-1")}, 2));
  CHECK(inventory.by_node().at("a").at(kClass) == 2);
  CHECK(inventory.product("a").empty());
  inventory.put(kube::kDeviceClasses,
                device_class("gpu.example.com", "device.attributes['gpu.example.com'].productName == 'Example B2'"));
  CHECK(inventory.by_node() == std::map<std::string, Resources>{{"a", {{kClass, 1}}}});
  inventory.drop(kube::kResourceSlices, slice("s-a", "a", {}));
  CHECK(inventory.by_node().empty());
  inventory.put(kube::kDeviceClasses, device_class("gpu.example.com", kGpus));
  CHECK(inventory.by_node().size() == 1);
  inventory.drop(kube::kDeviceClasses, device_class("gpu.example.com", kGpus));
  CHECK(inventory.by_node().empty());
  inventory = inventory_of_two_nodes();
  CHECK(inventory.replace(kube::kResourceSlices, {slice("s-b", "b", {gpu("gpu-0")})}).empty());
  CHECK(inventory.by_node().size() == 1);
  CHECK(inventory.replace(kube::kDeviceClasses, {device_class("gpu.example.com", "x")}).size() == 1);
  CHECK(inventory.by_node().empty());
}

TEST_CASE("tainted devices, outdated slices and slices for all nodes are not counted") {
  DeviceInventory inventory = inventory_of_two_nodes();
  inventory.put(kube::kResourceSlices, slice("s-a-2", "a", {gpu("gpu-2")}, 2));  // a newer generation than s-a
  CHECK(inventory.by_node().at("a").at(kClass) == 1);
  json everywhere = slice("s-all", "", {gpu("gpu-9")});
  everywhere["spec"]["allNodes"] = true;
  inventory.put(kube::kResourceSlices, everywhere);
  CHECK(inventory.by_node().size() == 2);
  json tainted = gpu("gpu-3");
  tainted["taints"] = json::array({{{"key", "unhealthy"}, {"effect", "NoSchedule"}}});
  inventory.put(kube::kResourceSlices, slice("s-b", "b", {gpu("gpu-0"), tainted}));
  CHECK(inventory.by_node().at("b").at(kClass) == 1);
}

TEST_CASE("a class with an unsupported selector is reported and provides no devices") {
  DeviceInventory inventory = inventory_of_two_nodes();
  CHECK(inventory.put(kube::kDeviceClasses, device_class("large", "device.capacity['x'].memory.isGreaterThan(1)")) ==
        "cannot count the devices of device class 'large': its selector is not a conjunction of comparisons: expected "
        "'attributes' at 'capacity['x'].memory.isGreaterThan(1)'; use another class for jobs");
  CHECK(inventory.by_node().at("a") == Resources{{kClass, 2}});
  CHECK(inventory.put(kube::kDeviceClasses, device_class("gpu.example.com", "x")) != "");
  CHECK(inventory.by_node().empty());
}

TEST_CASE("pods request devices by class name, by extended resource, and by claims") {
  DeviceInventory inventory = inventory_of_two_nodes("example.com/gpu");
  const json exactly{{"deviceClassName", "gpu.example.com"}};
  const auto add_template = [&](const char* name, const json& more) {
    json wanted = exactly;
    wanted.update(more);
    inventory.put(kube::kResourceClaimTemplates, claim_template(name, {{"name", "gpu"}, {"exactly", wanted}}));
  };
  add_template("two", {{"count", 2}});
  add_template("admin", {{"adminAccess", true}});
  add_template("all", {{"allocationMode", "All"}});
  const json alternatives = {exactly, {{"deviceClassName", "other"}, {"count", 4}}};
  inventory.put(kube::kResourceClaimTemplates,
                claim_template("any", {{"name", "gpu"}, {"firstAvailable", alternatives}}));
  const auto requests = [&](const json& spec, Resources known = {}, bool is_new = true) {
    inventory.complete_requests({{"metadata", {{"namespace", "ns"}}}, {"spec", spec}}, is_new, known);
    return known;
  };
  const auto claims = [](const char* name) {
    return json{{"resourceClaims", {{{"name", "gpus"}, {"resourceClaimTemplateName", name}}}}};
  };
  const auto gpus = [](int count) { return Resources{{"example.com/gpu", count}, {kOnlyDevices, count}}; };
  CHECK(requests(claims("two"), {{"cpu", 1000}}) ==
        Resources{{"cpu", 1000}, {"example.com/gpu", 2}, {kOnlyDevices, 2}});
  CHECK(requests(claims("any")) == gpus(1));
  CHECK(requests(json::object(), {{kClass, 1}}) == gpus(1));
  // The resource may come from a device plugin instead.
  CHECK(requests(json::object(), {{"example.com/gpu", 1}}) == Resources{{"example.com/gpu", 1}});
  CHECK(requests({{"resourceClaims", {{{"name", "shared"}, {"resourceClaimName", "two"}}}}}).empty());
  CHECK(requests(claims("admin")).empty());
  // New pods wait until the template exists; existing pods cannot wait.
  CHECK(requests(claims("missing")) == Resources{{"ResourceClaimTemplate 'ns/missing' (not found)", 1}});
  CHECK(requests(claims("missing"), {}, false).empty());
  CHECK(requests(claims("all")).contains("ResourceClaimTemplate 'ns/all' (the number of its devices is not fixed)"));
  CHECK(requests(claims("all"), {}, false) == gpus(1));
  inventory.drop(kube::kResourceClaimTemplates, claim_template("two", {}));
  CHECK(requests(claims("two"), {}, false) == gpus(2));
  CHECK(requests(claims("two")).contains("ResourceClaimTemplate 'ns/two' (not found)"));
}

TEST_CASE("the resources of a future node include its devices under all their names") {
  const DeviceInventory inventory = inventory_of_two_nodes("example.com/gpu");
  Resources by_resource{{"example.com/gpu", 4}, {"cpu", 8000}}, by_class{{kClass, 4}, {"cpu", 8000}}, none{{"cpu", 1}};
  for (Resources* each : {&by_resource, &by_class, &none}) inventory.complete_node(*each);
  CHECK(by_resource == Resources{{"example.com/gpu", 4}, {kOnlyDevices, 4}, {"cpu", 8000}});
  CHECK(by_class == by_resource);
  CHECK(none == Resources{{"cpu", 1}});
}

TEST_CASE("devices allocated to claims count as used, and devices of a replica's own claims are not counted twice") {
  DeviceInventory inventory = inventory_of_two_nodes();
  Owner owner = Owner::kOtherPod;
  const auto held = [&] {
    return inventory.allocated([&](const std::string& uid) { return uid == "p" ? owner : Owner::kUnknownPod; });
  };
  inventory.put(kube::kResourceClaims, claim("c", "p", {{"a", "gpu-0"}, {"b", "gpu-0"}, {"a", "unknown"}}));
  const std::map<std::string, Resources> both{{"a", {{kClass, 1}}}, {"b", {{kClass, 1}}}};
  CHECK(held() == both);
  owner = Owner::kUnknownPod;
  CHECK(held().empty());
  // A replica's devices are held under all names except those that it requested.
  owner = Owner::kReplica;
  CHECK(held()["a"].empty());
  inventory.put(kube::kDeviceClasses, device_class("all", "device.driver == 'gpu.example.com'"));
  CHECK(held()["a"] == Resources{{"deviceclass.resource.kubernetes.io/all", 1}});
  inventory.drop(kube::kDeviceClasses, device_class("all", ""));
  // A claim shared by pods is not owned by a pod.
  json shared = claim("c", "", {{"a", "gpu-0"}, {"b", "gpu-0"}});
  shared["status"]["reservedFor"] = {{{"resource", "pods"}, {"uid", "p"}}};
  inventory.put(kube::kResourceClaims, shared);
  CHECK(held() == both);
  shared.erase("status");
  inventory.put(kube::kResourceClaims, shared);
  CHECK(held().empty());
}

TEST_CASE("the allocator sees devices as resources of nodes, jobs and other pods") {
  ClusterState state;
  state.put_node(node("a", {{"cpu", "8"}, {"example.com/gpu", "0"}}));  // left over from a removed device plugin
  state.put_node(node("b", {{"cpu", "8"}, {"example.com/gpu", "7"}}));  // from a running device plugin
  state.put_device_object(kube::kDeviceClasses, device_class("gpu.example.com", kGpus, "example.com/gpu"));
  state.put_device_object(kube::kResourceSlices, slice("s-a", "a", {gpu("0"), gpu("1"), gpu("2"), gpu("3")}));
  state.put_device_object(kube::kResourceSlices, slice("s-b", "b", {gpu("0")}));
  state.put_device_object(kube::kResourceClaimTemplates,
                          claim_template("one", {{"exactly", {{"deviceClassName", "gpu.example.com"}}}}));
  const json claims = {{{"name", "gpu"}, {"resourceClaimTemplateName", "one"}}};
  state.put_job(
      {{"metadata", {{"namespace", "ns"}, {"name", "job"}, {"uid", "u"}}},
       {"spec", {{"template", {{"spec", {{"resourceClaims", claims}, {"containers", {{{"name", "main"}}}}}}}}}}});
  const auto pod = [&](const std::string& uid, const json& resource_claims) {
    return json{{"metadata", {{"namespace", "ns"}, {"name", uid}, {"uid", uid}}},
                {"spec", {{"nodeName", "a"}, {"resourceClaims", resource_claims}}},
                {"status", {{"phase", "Running"}}}};
  };
  json replica = pod("replica", claims);
  replica["metadata"]["labels"] = {{"adaptdl", "true"}};
  replica["metadata"]["ownerReferences"] = {
      {{"apiVersion", "adaptdl.petuum.com/v1"}, {"kind", "AdaptDLJob"}, {"name", "job"}, {"uid", "u"}}};
  state.put_pod(replica);
  state.put_pod(pod("other", claims));
  state.put_pod(pod("sharing", {{{"name", "gpu"}, {"resourceClaimName", "shared"}}}));
  state.put_device_object(kube::kResourceClaims, claim("c-r", "replica", {{"a", "0"}}));
  state.put_device_object(kube::kResourceClaims, claim("c-o", "other", {{"a", "1"}}));
  state.put_device_object(kube::kResourceClaims, claim("shared", "", {{"a", "2"}}));

  const AllocatorCluster cluster = state.cluster({}, std::chrono::system_clock::now());
  REQUIRE(cluster.nodes.size() == 2);
  CHECK(cluster.nodes[0].allocatable.at("example.com/gpu") == 4);
  CHECK(cluster.nodes[0].gpu_type == "Example-A1");
  CHECK(cluster.nodes[1].allocatable.at("example.com/gpu") == 7);
  CHECK(cluster.nodes[1].allocatable.at(kOnlyDevices) == 1);
  REQUIRE(cluster.jobs.size() == 1);
  CHECK(cluster.jobs[0].info.resources.at("example.com/gpu") == 1);
  CHECK(cluster.jobs[0].requests.at("a").at("example.com/gpu") == 1);
  CHECK(cluster.used.at("a").at("example.com/gpu") == 2);

  const std::vector<NodePrice> prices;
  CHECK(state.usage_rate(state.job("ns/job")->job, {"a", "a"}, {}, prices).gpus == 2);
  state.replace_device_objects(kube::kResourceSlices, {});
  CHECK(state.cluster({}, std::chrono::system_clock::now()).nodes[0].allocatable.at("example.com/gpu") == 0);
}

}  // namespace operator_devices_test
