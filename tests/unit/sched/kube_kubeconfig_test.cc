// Tests that kubeconfigs are read as kubectl reads them.
#include "kube/api/kubeconfig.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "kube/api/in_cluster.h"
#include "temporary_directory.h"

namespace kube_kubeconfig_test {

using namespace adaptdl;
using namespace adaptdl::kube;
using ::testing::error_of;
namespace fs = std::filesystem;

namespace {

// Returns a kubeconfig with one cluster, one user, and one context, which is current.
std::string kubeconfig(const std::string& cluster, const std::string& user, const std::string& context = "") {
  return "apiVersion: v1\nkind: Config\ncurrent-context: dev\nclusters:\n- name: c\n  cluster: {" + cluster +
         "}\nusers:\n- name: u\n  user: {" + user + "}\ncontexts:\n- name: dev\n  context: {cluster: c, user: u" +
         context + "}\n";
}

Access parse(const std::string& text, const AccessChoice& choice = {}) {
  return parse_kubeconfig(text, "/dir", choice);
}

std::string refusal(const std::string& text, const AccessChoice& choice = {}) {
  return error_of([&] { parse(text, choice); });
}

// Sets up a temporary directory and an environment without clusters. The destructor restores the environment.
class Machine {
 public:
  Machine() {
    for (const char* key : {"KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}) {
      if (const char* value = std::getenv(key)) before_[key] = value;
      ::unsetenv(key);
    }
    set("HOME", directory_.path());
  }
  ~Machine() {
    for (const char* key : {"KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}) {
      ::unsetenv(key);
      if (const auto at = before_.find(key); at != before_.end()) ::setenv(key, at->second.c_str(), 1);
    }
  }
  void set(const char* key, const std::string& value) { ::setenv(key, value.c_str(), 1); }
  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = directory() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }
  const fs::path& directory() const { return directory_.path(); }

 private:
  ::testing::TemporaryDirectory directory_;
  std::map<std::string, std::string> before_;
};

constexpr const char* kServer = "server: 'https://host:6443'";

}  // namespace

TEST_CASE("a context selects its cluster, user and namespace") {
  const Access access =
      parse(kubeconfig("server: 'https://host:6443/k8s/', certificate-authority: ca.pem, tls-server-name: kube, "
                       "proxy-url: 'socks5://proxy:1080'",
                       "client-certificate-data: Y2VydA==, client-key: /keys/key.pem", ", namespace: mine"));
  CHECK(access.context == "dev");
  CHECK(access.user == "u");
  CHECK(access.server == "https://host:6443/k8s");
  CHECK(access.name_space == "mine");
  CHECK(access.certificate_authority.file == "/dir/ca.pem");
  CHECK(access.tls_server_name == "kube");
  CHECK(access.proxy_url == "socks5://proxy:1080");
  CHECK(access.client_certificate.value == "cert");
  CHECK(access.client_key.file == "/keys/key.pem");
  CHECK_FALSE(access.insecure_skip_tls_verify);
}

TEST_CASE("tokens, token files, passwords and impersonation are parsed") {
  CHECK(parse(kubeconfig(kServer, "token: abc")).token.value == "abc");
  CHECK(parse(kubeconfig(kServer, "token: 12345")).token.value == "12345");
  CHECK(parse(kubeconfig(kServer, "tokenFile: ../token")).token.file == "/token");
  const Access basic = parse(kubeconfig(kServer, "username: ada, password: 'p:w'"));
  CHECK(basic.username == "ada");
  CHECK(basic.password == "p:w");
  const Access other = parse(kubeconfig(
      kServer, "token: t, as: bob, as-uid: '7', as-groups: [a, b], as-user-extra: {scopes: [x, y], reason: [z]}"));
  CHECK(other.impersonate_user == "bob");
  CHECK(other.impersonate_uid == "7");
  CHECK(other.impersonate_groups == std::vector<std::string>{"a", "b"});
  CHECK(other.impersonate_extra.at("scopes") == std::vector<std::string>{"x", "y"});
}

TEST_CASE("settings are text, even if they look like numbers, booleans or null") {
  for (const std::string text :
       {"0123", "yes", "True", "off", "1e3", "1.50", "-0", "0x1F", "'null'", "'true'", "'7'"}) {
    const Access access = parse(kubeconfig(kServer, "username: a, password: " + text + ", as: b, as-groups: [" + text +
                                                        "], as-user-extra: {" + text + ": [" + text + "]}"));
    const std::string expected = text.front() == '\'' ? text.substr(1, text.size() - 2) : text;
    CHECK(access.password == expected);
    CHECK(access.impersonate_groups == std::vector<std::string>{expected});
    CHECK(access.impersonate_extra.at(expected) == std::vector<std::string>{expected});
  }
}

TEST_CASE("a credential plugin is parsed with the cluster's settings for it") {
  const Access access = parse(kubeconfig(
      std::string(kServer) + ", extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: a, n: 1, "
                             "q: '1', list: [true, null]}}]",
      "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login, args: [-x, 1], env: [{name: A, value: "
      "b}], "
      "installHint: get it, provideClusterInfo: true, interactiveMode: Never}"));
  REQUIRE(access.exec);
  CHECK(access.exec->command == "./login");
  CHECK(access.exec->directory == "/dir");
  CHECK(access.exec->arguments == std::vector<std::string>{"-x", "1"});
  CHECK(access.exec->environment.at("A") == "b");
  CHECK(access.exec->install_hint == "get it");
  CHECK(access.exec->input == ExecPlugin::Input::kNever);
  CHECK(access.exec->provide_cluster_info);
  CHECK(access.exec->config == R"({"audience":"a","list":[true,null],"n":1,"q":"1"})");
}

TEST_CASE("a given context or namespace overrides the current context or its namespace") {
  const std::string text =
      kubeconfig(kServer, "token: t") + "- name: other\n  context: {cluster: c, user: u, namespace: theirs}\n";
  CHECK(parse(text, {"other", ""}).name_space == "theirs");
  CHECK(parse(text, {"other", "mine"}).name_space == "mine");
  CHECK(parse(text).name_space == "default");
  CHECK_GOLDEN(refusal(text, {"x", ""}));
}

TEST_CASE("JSON is accepted, including tabs and JSON escapes") {
  const Access access = parse(
      "{\n\t\"current-context\": \"dev\",\n\t\"clusters\": [{\"name\": \"c\", \"cluster\": {\"server\": "
      "\"https:\\/\\/host\"}}],\n\t\"users\": [{\"name\": \"u\", \"user\": {\"token\": \"a\\u00e9\\ud83d\\ude00\"}}],\n"
      "\t\"contexts\": [{\"name\": \"dev\", \"context\": {\"cluster\": \"c\", \"user\": \"u\"}}]\n}\n");
  CHECK(access.server == "https://host");
  CHECK(access.token.value == "a\u00e9\U0001f600");
}

TEST_CASE("a server without a scheme uses HTTPS only if TLS is configured") {
  CHECK(parse(kubeconfig("server: 'localhost:8080'", "token: t")).server == "http://localhost:8080");
  CHECK(parse(kubeconfig("server: 'h:1', insecure-skip-tls-verify: true", "token: t")).server == "https://h:1");
  CHECK(parse(kubeconfig("server: 'h:1', certificate-authority: c", "token: t")).server == "https://h:1");
}

TEST_CASE("errors are reported in one line with their location") {
  const std::string token = "token: geheim";
  CHECK_GOLDEN(refusal("a: \xff"));
  CHECK_GOLDEN(refusal(std::string("a: N\0N", 6)));
  CHECK_GOLDEN(refusal("current-context: \"\\N\""));
  CHECK_GOLDEN(refusal("a: ["));
  CHECK_GOLDEN(refusal("just text"));
  CHECK_GOLDEN(refusal(""));
  CHECK_GOLDEN(refusal("current-context: dev\nclusters: 7\ncontexts: {}"));
  CHECK_GOLDEN(refusal(kubeconfig("", token)));
  CHECK_GOLDEN(refusal(kubeconfig("server: 'ftp://h'", token)));
  CHECK_GOLDEN(refusal(kubeconfig("server: 'https://a:b@h'", token)));
  CHECK_GOLDEN(refusal(kubeconfig("server: 'https://h', proxy-url: 'ftp://p'", token)));
  CHECK_GOLDEN(refusal(kubeconfig("server: 'https://h', certificate-authority-data: '%'", token)));
  CHECK_GOLDEN(refusal(kubeconfig("server: 'https://h', insecure-skip-tls-verify: perhaps", token)));
  CHECK_GOLDEN(refusal(kubeconfig("server: 'https://h', server: 'https://i'", token)));
  CHECK_GOLDEN(refusal(kubeconfig(kServer, token, ", namespace: No_1")));
  CHECK_GOLDEN(refusal(kubeconfig(kServer, token, ", cluster: d")));
}

TEST_CASE("contradictory settings are rejected without revealing secrets") {
  CHECK_GOLDEN(refusal(kubeconfig(kServer, "token: geheim, username: a, password: geheim")));
  CHECK_GOLDEN(refusal(kubeconfig(kServer, "client-certificate: c")));
  CHECK_GOLDEN(refusal(kubeconfig(kServer, "client-certificate: c, client-key: k, client-key-data: Z2VoZWlt")));
  CHECK_GOLDEN(refusal(kubeconfig(kServer, "token: geheim, as-groups: [a]")));
  CHECK_GOLDEN(refusal(kubeconfig(kServer, "exec: {command: x}")));
  CHECK_GOLDEN(refusal(kubeconfig(kServer, "auth-provider: {name: gcp, config: {access-token: geheim}}")));
}

TEST_CASE("a missing user or cluster and duplicate context names are reported") {
  const std::string text = kubeconfig(kServer, "token: t");
  CHECK_GOLDEN(refusal(text + "- name: dev\n  context: {}\n"));
  CHECK_GOLDEN(refusal(text + "- name: e\n  context: {cluster: c}\n", {"e", ""}));
  CHECK_GOLDEN(refusal(text + "- name: e\n  context: {cluster: d, user: u}\n", {"e", ""}));
}

TEST_CASE("excessive nesting, aliases and sizes are rejected" * doctest::test_suite("slow")) {
  CHECK(refusal(std::string(100000, '[')).starts_with("kubeconfig:"));
  CHECK(refusal(std::string(100000, '{')).starts_with("kubeconfig:"));
  std::string blocks;
  for (int i = 0; i < 100000; ++i) blocks += "- ";
  CHECK(refusal(blocks).starts_with("kubeconfig:"));
  CHECK_GOLDEN(refusal(std::string(5 << 20, ' ')));
  const std::string exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: c, provideClusterInfo: true}";
  const auto settings = [&](const std::string& value) {
    return kubeconfig(
        std::string(kServer) + ", extensions: [{name: client.authentication.k8s.io/exec, extension: " + value + "}]",
        exec);
  };
  CHECK_GOLDEN(refusal(settings("&a [*a]")));
  std::string bomb = "[&a0 [x, x, x, x, x, x, x, x]";
  for (int i = 1; i < 12; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += ", &a" + std::to_string(i) + " [" + last + ", " + last + ", " + last + ", " + last + ", " + last + "]";
  }
  CHECK_GOLDEN(refusal(settings(bomb + "]")));
}

TEST_CASE("the first file that defines a name wins, and missing files are skipped") {
  Machine machine;
  const std::string first = machine.write("first", "current-context: dev\nusers: [{name: u, user: {tokenFile: t}}]\n");
  const std::string second =
      machine.write("sub/second", kubeconfig("server: 'https://second', certificate-authority: ca", "token: second"));
  const std::string third = machine.write("third", kubeconfig("server: 'https://third'", "token: third") + "\n");
  machine.set("KUBECONFIG", (machine.directory() / "missing").string() + "::" + first + ":" + second + ":" + third);
  const std::optional<Access> access = find_access({});
  REQUIRE(access);
  CHECK(access->server == "https://second");
  CHECK(access->token.value.empty());
  CHECK(access->token.file == machine.directory() / "t");
  CHECK(access->certificate_authority.file == machine.directory() / "sub/ca");
}

TEST_CASE("without KUBECONFIG, ~/.kube/config is read if it exists") {
  Machine machine;
  CHECK_FALSE(find_access({}));
  CHECK_GOLDEN(error_of([] { find_access({"dev", ""}); }));
  machine.write(".kube/config", kubeconfig("server: 'https://home'", "token: t"));
  CHECK(find_access({})->server == "https://home");
  CHECK_THROWS_AS(find_access({"", "a/b"}), UsageError);
}

TEST_CASE("it is an error if no file in KUBECONFIG exists, or if one is unreadable or malformed") {
  Machine machine;
  const std::string missing = machine.directory() / "missing";
  machine.set("KUBECONFIG", missing);
  CHECK(error_of([] { find_access({}); }) == "no file in KUBECONFIG exists: " + missing);
  machine.set("KUBECONFIG", machine.directory());
  CHECK(error_of([] { find_access({}); }) ==
        "cannot read '" + machine.directory().string() + "' (kubeconfig): Is a directory");
  const std::string bad = machine.write("bad", "clusters:\n- name: 'c\n");
  machine.set("KUBECONFIG", bad);
  CHECK(error_of([] { find_access({}); }).starts_with(bad + ":"));
  machine.set("KUBECONFIG", machine.write("empty", ""));
  CHECK_GOLDEN(error_of([] { find_access({}); }));
}

TEST_CASE("in a pod, the cluster is accessed with the service account") {
  Machine machine;
  machine.write("account/token", "geheim\n");
  machine.write("account/ca.crt", "pem");
  machine.write("account/namespace", "mine\n");
  const fs::path account = machine.directory() / "account";
  CHECK_FALSE(in_cluster_access("", account));
  machine.set("KUBERNETES_SERVICE_HOST", "10.0.0.1");
  machine.set("KUBERNETES_SERVICE_PORT", "443");
  const std::optional<Access> access = in_cluster_access("", account);
  REQUIRE(access);
  CHECK(access->server == "https://10.0.0.1:443");
  CHECK(access->token.value.empty());
  CHECK(access->token.file == account / "token");
  CHECK(access->certificate_authority.file == account / "ca.crt");
  CHECK(access->name_space == "mine");
  CHECK(in_cluster_access("theirs", account)->name_space == "theirs");
  machine.set("KUBERNETES_SERVICE_HOST", "fd00::1");
  CHECK(in_cluster_access("", account)->server == "https://[fd00::1]:443");
  CHECK_FALSE(in_cluster_access("", machine.directory() / "none"));
}

}  // namespace kube_kubeconfig_test
