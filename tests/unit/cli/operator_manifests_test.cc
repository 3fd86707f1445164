#include "command/operator/operator_manifests.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "adaptdl/error.h"
#include "command/base/installed_data.h"
#include "command/operator/chart.h"
#include "error_of.h"
#include "golden.h"
#include "kube/api/yaml_documents.h"
#include "operator/nodes/node_facts.h"
#include "temporary_directory.h"

namespace operator_manifests_test {

using namespace adaptdl;
using nlohmann::json;

namespace {

std::vector<json> manifests(const cli::OperatorManifestsOptions& options = {}) {
  std::vector<json> documents;
  for (auto& document : kube::parse_yaml_documents(cli::operator_manifests(options), "manifests"))
    documents.push_back(std::move(document.value));
  return documents;
}

json object(const std::vector<json>& documents, const std::string& kind) {
  for (const json& document : documents) {
    if (document["kind"] == kind) return document;
  }
  FAIL("no " << kind);
  return {};
}

json container(const std::vector<json>& documents) {
  return object(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0];
}

std::string argument(const std::vector<json>& documents, const std::string& option) {
  const std::vector<std::string> args = container(documents)["args"];
  const auto found = std::ranges::find(args, option);
  REQUIRE(found != args.end());
  return *(found + 1);
}

// Expands an argument as Kubernetes does if no variable is defined.
std::string expanded(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text.compare(i, 2, "$$") == 0) ++i;
  }
  return out;
}

void refused(const std::string& setting, const std::string& message) {
  CAPTURE(setting);
  CHECK_THROWS_WITH_AS(cli::operator_manifests({.settings = {setting}}), message.c_str(), UsageError);
}

std::string render(const std::string& text, const json& values = json::object()) {
  return cli::render_chart({"1.2.3", values, {{"t.yaml", text}}}, {"adaptdl", "space"})[0].text;
}

const json kCluster = json::parse(R"([
  {"apiGroups": ["adaptdl.petuum.com"], "resources": ["adaptdljobs"], "verbs": ["list", "watch"]},
  {"apiGroups": ["adaptdl.petuum.com"], "resources": ["adaptdljobs/status"], "verbs": ["patch"]},
  {"apiGroups": ["adaptdl.petuum.com"], "resources": ["adaptdljobs/finalizers"], "verbs": ["update"]},
  {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "delete"]},
  {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
  {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]},
  {"apiGroups": ["resource.k8s.io"], "resources": ["deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"],
   "verbs": ["list", "watch"]},
  {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
  {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
   "resourceNames": ["adaptdl-validator"], "verbs": ["get", "update"]}])");
const json kNamespaced = json::parse(R"([
  {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
  {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["adaptdl-operator"], "verbs": ["get", "update"]},
  {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
  {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
  {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["adaptdl-validator"], "verbs": ["get", "update"]},
  {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create", "update"]},
  {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["adaptdl-placeholder"], "verbs": ["get"]},
  {"apiGroups": ["apps"], "resources": ["deployments/scale"], "resourceNames": ["adaptdl-placeholder"], "verbs": ["patch"]},
  {"apiGroups": [""], "resources": ["services"], "resourceNames": ["adaptdl-supervisor"], "verbs": ["get"]}])");

}  // namespace

TEST_CASE("the manifests are the CRD, the namespace and the operator's objects, with the deployment last") {
  const auto documents = manifests();
  std::vector<std::string> kinds;
  for (const json& document : documents) {
    kinds.push_back(document["kind"]);
    CHECK(document["apiVersion"].is_string());
    CHECK(document["metadata"]["name"].is_string());
  }
  CHECK(kinds == std::vector<std::string>{"CustomResourceDefinition", "Namespace", "NetworkPolicy", "ClusterRole",
                                          "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount", "Service",
                                          "Service", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
                                          "Deployment"});
  CHECK(cli::operator_manifests({}).find("{{") == std::string::npos);
  CHECK(container(documents)["image"] == "adaptdl-operator:" ADAPTDL_VERSION);
  CHECK(object(documents, "Deployment")["metadata"]["labels"]["app.kubernetes.io/version"] == ADAPTDL_VERSION);
}

TEST_CASE("every namespaced object is in the specified namespace") {
  const std::set<std::string> global = {
      "CustomResourceDefinition",    "Namespace", "ClusterRole", "ClusterRoleBinding", "ValidatingWebhookConfiguration",
      "MutatingWebhookConfiguration"};
  const auto documents = manifests({.name_space = "on"});  // `on` without quotes is true in YAML 1.1
  for (const json& document : documents) {
    CAPTURE(document.dump());
    if (global.contains(document["kind"]))
      CHECK_FALSE(document["metadata"].contains("namespace"));
    else
      CHECK(document["metadata"]["namespace"] == "on");
    if (document.contains("subjects")) CHECK(document["subjects"][0]["namespace"] == "on");
  }
  CHECK(object(documents, "Namespace")["metadata"]["name"] == "on");
  for (const char* name : {"", "a.b", "A", "x\n---\n"})
    CHECK_THROWS_AS(cli::operator_manifests({.name_space = name}), UsageError);
}

TEST_CASE("permissions are exactly the documented ones, without wildcards") {
  const auto documents = manifests();
  CHECK(object(documents, "ClusterRole")["rules"] == kCluster);
  CHECK(object(documents, "Role")["rules"] == kNamespaced);
  for (const char* kind : {"ClusterRole", "Role"}) {
    const std::string text = object(documents, kind).dump();
    CHECK(text.find('*') == std::string::npos);
    const json binding = object(documents, std::string(kind) + "Binding");
    CHECK(binding["roleRef"]["kind"] == kind);
    CHECK(binding["roleRef"]["name"] == object(documents, kind)["metadata"]["name"]);
    CHECK(binding["subjects"][0]["name"] == object(documents, "ServiceAccount")["metadata"]["name"]);
  }
}

TEST_CASE("without liveRescale, the operator cannot patch pods cluster-wide") {
  const auto documents = manifests(), without = manifests({.settings = {"liveRescale=false"}});
  const json rules = object(documents, "ClusterRole")["rules"], patch = {"patch"};
  CHECK(std::ranges::count_if(rules, [&](const json& rule) {
          return rule["resources"] == json({"pods"}) && rule["verbs"] == patch;
        }) == 1);
  CHECK(object(without, "ClusterRole")["rules"].size() == rules.size() - 1);
  const auto has_flag = [](const std::vector<json>& all) {
    const std::vector<std::string> args = container(all)["args"];
    return std::ranges::find(args, "--live-rescale") != args.end();
  };
  CHECK(has_flag(documents));
  CHECK_FALSE(has_flag(without));
}

TEST_CASE("the service, network policy and deployment select the operator's pods, but not replicas") {
  const auto documents = manifests();
  const json deployment = object(documents, "Deployment")["spec"];
  const json labels = deployment["template"]["metadata"]["labels"];
  const json policy = object(documents, "NetworkPolicy")["spec"];
  json service = object(documents, "Service")["spec"]["selector"];
  CHECK(service["adaptdl/leader"] == "true");  // the operator adds this label
  service.erase("adaptdl/leader");
  for (const json& selector : {service, policy["podSelector"]["matchLabels"], deployment["selector"]["matchLabels"]}) {
    CHECK(!selector.empty());
    for (const auto& [key, value] : selector.items()) CHECK(labels.at(key) == value);
  }
  CHECK_FALSE(labels.contains("adaptdl"));
  CHECK(policy["ingress"] == json::parse(R"([{"from": [{"namespaceSelector": {},
    "podSelector": {"matchLabels": {"adaptdl": "true"}}}], "ports": [{"port": 8080, "protocol": "TCP"}]},
    {"from": [{"namespaceSelector": {}}], "ports": [{"port": 9090, "protocol": "TCP"}]},
    {"ports": [{"port": 8443, "protocol": "TCP"}]}])"));
  CHECK(deployment["template"]["spec"]["serviceAccountName"] == "adaptdl-operator");
  CHECK(deployment["replicas"] == 2);
  CHECK(deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0);
}

TEST_CASE("the API server calls the operator's validator only for jobs in the selected namespaces") {
  const auto documents =
      manifests({.name_space = "other",
                 .settings = {"validatorFailurePolicy=Fail", "validatorNamespaces={matchLabels: {a: b}}",
                              "validatorCertificateLifetime=1h"}});
  const json configuration = object(documents, "ValidatingWebhookConfiguration");
  const json webhook = configuration["webhooks"][0];
  CHECK(configuration["webhooks"].size() == 1);
  CHECK(webhook["failurePolicy"] == "Fail");
  CHECK(webhook["namespaceSelector"] == json{{"matchLabels", {{"a", "b"}}}});
  CHECK(webhook["clientConfig"]["service"]["namespace"] == "other");
  CHECK(webhook["rules"].size() == 1);
  CHECK(webhook["rules"][0]["resources"] == json{"adaptdljobs"});
  CHECK(webhook["rules"][0]["apiGroups"] == json{"adaptdl.petuum.com"});
  // All three objects have the name that the operator receives as an argument.
  const std::string name = configuration["metadata"]["name"];
  CHECK(webhook["clientConfig"]["service"]["name"] == name);
  CHECK(std::ranges::any_of(documents, [&](const json& document) {
    return document["kind"] == "Service" && document["metadata"]["name"] == name &&
           document["spec"]["ports"][0]["port"] == webhook["clientConfig"]["service"]["port"] &&
           !document["spec"]["selector"].contains("adaptdl/leader");
  }));
  CHECK(argument(documents, "--validator") == "$(NAMESPACE)/" + name);
  // The webhook also stores who created a job.
  const json mutating = object(documents, "MutatingWebhookConfiguration");
  CHECK(mutating["metadata"]["name"] == name);
  json submitter = mutating["webhooks"][0], expected = webhook;
  CHECK(submitter["clientConfig"]["service"]["path"] == "/submitter");
  for (json* each : {&submitter, &expected}) {
    each->erase("name");
    (*each)["clientConfig"]["service"].erase("path");
  }
  CHECK(submitter == expected);
  CHECK(argument(documents, "--validator-certificate-lifetime") == "1h");
  CHECK(object(manifests(), "ValidatingWebhookConfiguration")["webhooks"][0]["failurePolicy"] == "Ignore");
}

TEST_CASE("the chart's values keep their types in the deployment") {
  const auto documents =
      manifests({.image = "registry.example.com/team/operator@sha256:0",
                 .settings = {"interval=90", "policy=yes", "resources.limits.memory=1Gi", "resources.limits.cpu=2",
                              "nodeSelector.kubernetes\\.io/os=linux", "tolerations=[{key: gpu, operator: Exists}]",
                              "containerPatch=[{op: remove, path: /tty}]",
                              "startTimeout=", "jobResources={requests: {cpu: \"1\"}}"}});
  const json pod = object(documents, "Deployment")["spec"]["template"]["spec"];
  CHECK(pod["containers"][0]["image"] == "registry.example.com/team/operator@sha256:0");
  CHECK(argument(documents, "--interval") == "90");
  CHECK(argument(documents, "--policy") == "yes");
  CHECK(argument(documents, "--start-timeout") == "");
  CHECK(json::parse(argument(documents, "--job-resources")) == json::parse(R"({"requests": {"cpu": "1"}})"));
  CHECK(argument(documents, "--pod-patch") == "{}");
  CHECK(argument(documents, "--container-patch") == R"([{"op":"remove","path":"/tty"}])");
  CHECK(pod["containers"][0]["resources"] == json::parse(R"({"requests": {"cpu": "100m", "memory": "64Mi"},
    "limits": {"cpu": 2, "memory": "1Gi"}})"));
  CHECK(pod["nodeSelector"] == json{{"kubernetes.io/os", "linux"}});
  CHECK(pod["tolerations"] == json::parse(R"([{"key": "gpu", "operator": "Exists"}])"));
  for (const json& word : pod["containers"][0]["args"]) CHECK(word.is_string());
}

TEST_CASE("the drain taints and conditions default to those of the command") {
  const auto documents = manifests();
  const sched::DrainSigns signs;
  CHECK(json::parse(argument(documents, "--drain-taints")) == json(signs.taints));
  CHECK(json::parse(argument(documents, "--drain-conditions")) == json(signs.conditions));
}

TEST_CASE("setting maxNodes installs placeholder pods with anti-affinity") {
  const auto find = [](const std::vector<json>& documents) {
    return std::ranges::find_if(documents, [](const json& document) {
      return document["metadata"]["name"] == "adaptdl-placeholder" && document["kind"] == "Deployment";
    });
  };
  auto documents = manifests();
  CHECK(find(documents) == documents.end());
  CHECK(argument(documents, "--max-nodes") == "0");
  documents = manifests({.image = "operator:2",
                         .settings = {"minNodes=1", "maxNodes=8", "placeholderNodeSelector.a=b", "minUtility=0",
                                      "placeholderTolerations=[{key: gpu, operator: Exists}]"}});
  const auto found = find(documents);
  REQUIRE(found != documents.end());
  CHECK_FALSE((*found)["spec"].contains("replicas"));  // otherwise an update would reset the number
  const json& pod = (*found)["spec"]["template"];
  const json labels = {{"app.kubernetes.io/name", "adaptdl-placeholder"}};
  CHECK((*found)["spec"]["selector"]["matchLabels"] == labels);
  CHECK(pod["metadata"]["labels"]["app.kubernetes.io/name"] == "adaptdl-placeholder");
  const json& affinity = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
  CHECK(affinity[0]["labelSelector"]["matchLabels"] == labels);
  CHECK(pod["spec"]["nodeSelector"] == json{{"a", "b"}});
  CHECK(pod["spec"]["tolerations"][0]["key"] == "gpu");
  CHECK(pod["spec"]["containers"][0]["image"] == "operator:2");
  CHECK_FALSE(pod["spec"]["containers"][0].contains("resources"));
  CHECK((*found)["spec"]["strategy"]["rollingUpdate"] == json{{"maxSurge", 0}, {"maxUnavailable", "100%"}});
  CHECK(object(documents, "PriorityClass")["value"] == -9);
  CHECK(argument(documents, "--min-nodes") == "1");
  CHECK(argument(documents, "--max-nodes") == "8");
  CHECK(argument(documents, "--min-utility") == "0");
  CHECK(argument(documents, "--max-utility") == "0.65");
}

TEST_CASE("a value with special characters remains a single value" * doctest::test_suite("slow")) {
  const std::size_t count = manifests().size();
  for (const std::string text :
       {"a\n---\nkind: Pod", "\"quoted\": 'x'", "{{ .Values.policy }}", "# comment", "a: b", "- a", "*x", "\\ \t", "",
        "}\n]", "$(NAMESPACE) $$ $", "\u007f\u0085\u2028\ufeff", "\xf0\x9f\x98\x80 \\\xf0\x9f\x98\x80 \\ud83d", "no"}) {
    CAPTURE(text);
    const std::string quoted = cli::json_for_yaml(text);
    const auto documents = manifests({.settings = {"image=" + quoted, "podPatch={\"metadata\": " + quoted + "}"}});
    CHECK(documents.size() == count);
    CHECK(container(documents)["image"] == text);
    CHECK(json::parse(expanded(argument(documents, "--pod-patch"))) == json{{"metadata", text}});
    CHECK(argument(documents, "--container-patch") == "{}");
  }
  CHECK(container(manifests({.image = "x\n---\n\"y\": '"}))["image"] == "x\n---\n\"y\": '");
  CHECK_THROWS_AS(cli::operator_manifests({.image = "\xff"}), Error);
}

TEST_CASE("an invalid --set is rejected") {
  refused("imge=x", "--set imge: unknown key; did you mean 'image'?");
  refused("q.w=x", "--set q.w: unknown key");
  refused("image", "--set expects KEY=VALUE, got 'image'");
  refused("=x", "--set : empty key");
  refused("resources..cpu=1", "--set resources..cpu: empty key");
  refused("image.tag=x", "--set image.tag: 'image' is not a mapping");
  refused("resources.limits.memory.x=1", "--set resources.limits.memory.x: 'memory' is not a mapping");
  refused("image=[x]", "--set image: expected a string, got a list");
  refused("podPatch=x", "--set podPatch: expected a mapping, got a string");
  refused("podPatch=", "--set podPatch: expected a mapping, got null");
  refused("tolerations={}", "--set tolerations: expected a list, got a mapping");
  refused("podPatch={}\n---\n{}", "--set podPatch: expected one YAML document");
  CHECK_THROWS_AS(cli::operator_manifests({.settings = {"podPatch={"}}), UsageError);
}

TEST_CASE("a template that Helm might render differently from adaptdl is rejected with its file and line") {
  const json values = {{"a", {{"b", "$x"}}}, {"list", {1, 2}}};
  CHECK(render("n: {{ .Release.Namespace }}{{.Release.Name|toJson}}\n") == "n: space\"adaptdl\"\n");
  CHECK(render("v: {{ .Chart.AppVersion | toJson }}\n") == "v: \"1.2.3\"\n");
  CHECK(render("v: {{ .Values.list | toJson | toJson }}\n", values) == "v: \"[1,2]\"\n");
  CHECK(render("v: {{ .Values.a | toJson | replace \"$\" \"$$\" }}\n", values) == "v: {\"b\":\"$$x\"}\n");
  for (const auto& [expression, why] : std::map<std::string, std::string>{
           {"{{ if .Values.a }}", "unknown expression '{{ if .Values.a }}'"},
           {"{{- .Values.a.b }}", "'{{-' must begin a line, and its '}}' must end it"},
           {"{{- if .Values.a }}", "'{{-' must begin a line, and its '}}' must end it"},
           {"{{ .Values.a.b | quote }}", "unknown expression '{{ .Values.a.b | quote }}'"},
           {"{{ .Values.a.b toJson }}", "unknown expression '{{ .Values.a.b toJson }}'"},
           {"{{}}", "unknown expression '{{}}'"},
           {"{{ .Values.a.c | toJson }}", "unknown value '.Values.a.c'"},
           {"{{ .Values.a.b.c }}", "unknown value '.Values.a.b.c'"},
           {"{{ .Values.a }}", "'.Values.a' is not a string; use toJson"},
           {"{{ .Values.a | replace \"a\" \"b\" }}", "replace expects a string; apply toJson first"},
           {"{{ .Values.a", "'{{' without '}}'"}}) {
    const std::string message = "t.yaml:3: " + why;
    CHECK_THROWS_WITH_AS(render("a: {{ .Release.Name }}\n\nb: " + expression + "\n", values), message.c_str(), Error);
  }
  CHECK(render("a: 1\n{{- if .Values.list }}\nb: 2\n{{- end }}\nc: 3\n", values) == "a: 1\n\nb: 2\n\nc: 3\n");
  for (const json& none : {json(0), json(""), json(false), json(), json::array(), json::object()}) {
    CAPTURE(none);
    CHECK(render("a: 1\n{{- if .Values.n }}\nb: {{ .Values.x }}\n{{- end }}\nc: 3\n", {{"n", none}, {"x", "y"}}) ==
          "a: 1\n\nc: 3\n");
  }
  const auto block = [&](const std::string& text) { return render(text, values); };
  CHECK_GOLDEN(::testing::error_of([&] { block("{{- if .Values.a }}1\n"); }));
  CHECK_GOLDEN(::testing::error_of([&] { block("{{- .Values.a.b }}\n"); }));
  CHECK_GOLDEN(::testing::error_of([&] { block("{{- if .Values.a }}\n"); }));
  CHECK_GOLDEN(::testing::error_of([&] { block("\n{{- end }}\n"); }));
  CHECK_GOLDEN(::testing::error_of([&] { block("{{- if .Values.a }}\n{{- if .Values.b }}\n"); }));
  CHECK_GOLDEN(::testing::error_of([&] { block("{{- if .Values.c }}\n{{- end }}"); }));
  CHECK_THROWS_WITH_AS(render("a: 1\nb: [{{ .Values.a | toJson }}\n", values), doctest::Contains("t.yaml:"), Error);
}

TEST_CASE("the chart's templates write all expressions as JSON and use all values") {
  const cli::Chart chart = cli::load_chart(cli::installed_data("chart"));
  CHECK(chart.app_version == ADAPTDL_VERSION);
  std::string all;
  for (const cli::ChartTemplate& one : chart.templates) {
    all += one.text;
    for (std::size_t at = 0; (at = one.text.find("}}", at)) != std::string::npos; at += 2) {
      CAPTURE(one.name);
      const std::string expression = one.text.substr(one.text.rfind("{{", at), at - one.text.rfind("{{", at));
      if (expression.starts_with("{{- if ") || expression == "{{- end ") continue;
      CHECK(expression.ends_with("| toJson "));
    }
  }
  for (const auto& each : chart.values.items()) {
    CAPTURE(each.key());
    CHECK(all.find(".Values." + each.key() + " ") != std::string::npos);
  }
}

TEST_CASE("the error for an unreadable chart names the file") {
  const testing::TemporaryDirectory directory;
  const auto write = [&](const char* name, const char* text) { std::ofstream(directory.path() / name) << text; };
  CHECK_THROWS_WITH_AS(cli::load_chart(directory.path()), doctest::Contains("Chart.yaml"), Error);
  write("Chart.yaml", "appVersion: 1\n");
  CHECK_GOLDEN(::testing::error_of([&] { cli::load_chart(directory.path()); }));
  write("Chart.yaml", "appVersion: '1'\n");
  write("values.yaml", "[]\n");
  CHECK_THROWS_WITH_AS(cli::load_chart(directory.path()), doctest::Contains("values.yaml"), Error);
  write("values.yaml", "{a: 1}\n");
  CHECK_THROWS_WITH_AS(cli::load_chart(directory.path()), doctest::Contains("templates"), Error);
}

}  // namespace operator_manifests_test
