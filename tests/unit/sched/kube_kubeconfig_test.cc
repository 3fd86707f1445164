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
#include "kube/api/in_cluster.h"

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
    char name[] = "/tmp/kubeconfig-test-XXXXXX";
    directory_ = ::mkdtemp(name);
    for (const char* key : {"KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}) {
      if (const char* value = std::getenv(key)) before_[key] = value;
      ::unsetenv(key);
    }
    set("HOME", directory_);
  }
  ~Machine() {
    for (const char* key : {"KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}) {
      ::unsetenv(key);
      if (const auto at = before_.find(key); at != before_.end()) ::setenv(key, at->second.c_str(), 1);
    }
    fs::remove_all(directory_);
  }
  void set(const char* key, const std::string& value) { ::setenv(key, value.c_str(), 1); }
  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = directory_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }
  const fs::path& directory() const { return directory_; }

 private:
  fs::path directory_;
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

TEST_CASE("an explicit context or namespace overrides the current one") {
  const std::string text =
      kubeconfig(kServer, "token: t") + "- name: other\n  context: {cluster: c, user: u, namespace: theirs}\n";
  CHECK(parse(text, {"other", ""}).name_space == "theirs");
  CHECK(parse(text, {"other", "mine"}).name_space == "mine");
  CHECK(parse(text).name_space == "default");
  CHECK(refusal(text, {"x", ""}) == "kubeconfig: context 'x' not found (available: dev, other)");
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
  CHECK(refusal("a: \xff") == "kubeconfig: not valid UTF-8 text; save it as UTF-8");
  CHECK(refusal(std::string("a: N\0N", 6)) == "kubeconfig: not valid UTF-8 text; save it as UTF-8");
  CHECK(refusal("current-context: \"\\N\"") ==
        "kubeconfig:1: unsupported escape (such as \\N or \\_); write the character itself");
  CHECK(refusal("a: [") == "kubeconfig:1: invalid YAML: end of sequence flow not found");
  CHECK(refusal("just text") == "kubeconfig:1: not a kubeconfig; expected clusters, users and contexts");
  CHECK(refusal("") ==
        "kubeconfig: no current context; choose one with --context or kubectl config use-context (none exists; create "
        "one with kubectl config set-context)");
  CHECK(refusal("current-context: dev\nclusters: 7\ncontexts: {}") == "kubeconfig:3: 'contexts' must be a list");
  CHECK(refusal(kubeconfig("", token)) == "kubeconfig:6: the cluster has no 'server', such as https://host:6443");
  CHECK(refusal(kubeconfig("server: 'ftp://h'", token)) ==
        "kubeconfig:6: 'server' must begin with https:// or http://");
  CHECK(refusal(kubeconfig("server: 'https://a:b@h'", token)) ==
        "kubeconfig:6: 'server' must not contain a user; set it under 'users'");
  CHECK(refusal(kubeconfig("server: 'https://h', proxy-url: 'ftp://p'", token)) ==
        "kubeconfig:6: 'proxy-url' must begin with http://, https:// or socks5://");
  CHECK(refusal(kubeconfig("server: 'https://h', certificate-authority-data: '%'", token)) ==
        "kubeconfig:6: 'certificate-authority-data' is not valid base64");
  CHECK(refusal(kubeconfig("server: 'https://h', insecure-skip-tls-verify: perhaps", token)) ==
        "kubeconfig:6: 'insecure-skip-tls-verify' must be true or false");
  CHECK(refusal(kubeconfig("server: 'https://h', server: 'https://i'", token)) ==
        "kubeconfig:6: duplicate key 'server'");
  CHECK(refusal(kubeconfig(kServer, token, ", namespace: No_1")) == "kubeconfig:12: 'No_1' is not a valid namespace");
  CHECK(refusal(kubeconfig(kServer, token, ", cluster: d")) == "kubeconfig:12: duplicate key 'cluster'");
}

TEST_CASE("contradictory settings are rejected without revealing secrets") {
  CHECK(refusal(kubeconfig(kServer, "token: geheim, username: a, password: geheim")) ==
        "kubeconfig:9: a token and a user name with a password are mutually exclusive; remove one");
  CHECK(refusal(kubeconfig(kServer, "client-certificate: c")) ==
        "kubeconfig:9: the user has a client certificate, but no 'client-key'");
  CHECK(refusal(kubeconfig(kServer, "client-certificate: c, client-key: k, client-key-data: Z2VoZWlt")) ==
        "kubeconfig:9: 'client-key' and 'client-key-data' are mutually exclusive; remove one");
  CHECK(refusal(kubeconfig(kServer, "token: geheim, as-groups: [a]")) ==
        "kubeconfig:9: 'as-uid', 'as-groups' and 'as-user-extra' require 'as'");
  CHECK(refusal(kubeconfig(kServer, "exec: {command: x}")) ==
        "kubeconfig:9: the plugin's 'apiVersion' must be client.authentication.k8s.io/v1 (or v1beta1, v1alpha1)");
  CHECK(refusal(kubeconfig(kServer, "auth-provider: {name: gcp, config: {access-token: geheim}}")) ==
        "kubeconfig:9: auth-provider 'gcp' is no longer supported (kubectl removed it as well); install "
        "gke-gcloud-auth-plugin and run: gcloud container clusters get-credentials NAME");
}

TEST_CASE("missing parts and duplicate names are reported") {
  const std::string text = kubeconfig(kServer, "token: t");
  CHECK(refusal(text + "- name: dev\n  context: {}\n") == "kubeconfig:13: duplicate name 'dev' in contexts");
  CHECK(refusal(text + "- name: e\n  context: {cluster: c}\n", {"e", ""}) == "kubeconfig:14: context 'e' has no user");
  CHECK(refusal(text + "- name: e\n  context: {cluster: d, user: u}\n", {"e", ""}) ==
        "kubeconfig:14: context 'e' refers to cluster 'd', which does not exist");
}

TEST_CASE("excessive nesting, aliases and sizes are rejected") {
  CHECK(refusal(std::string(100000, '[')).starts_with("kubeconfig:"));
  CHECK(refusal(std::string(100000, '{')).starts_with("kubeconfig:"));
  std::string blocks;
  for (int i = 0; i < 100000; ++i) blocks += "- ";
  CHECK(refusal(blocks).starts_with("kubeconfig:"));
  CHECK(refusal(std::string(5 << 20, ' ')) == "kubeconfig: not a valid kubeconfig: larger than 4 MiB");
  const std::string exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: c, provideClusterInfo: true}";
  const auto settings = [&](const std::string& value) {
    return kubeconfig(
        std::string(kServer) + ", extensions: [{name: client.authentication.k8s.io/exec, extension: " + value + "}]",
        exec);
  };
  CHECK(refusal(settings("&a [*a]")).find("too many or too deeply nested") != std::string::npos);
  std::string bomb = "[&a0 [x, x, x, x, x, x, x, x]";
  for (int i = 1; i < 12; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += ", &a" + std::to_string(i) + " [" + last + ", " + last + ", " + last + ", " + last + ", " + last + "]";
  }
  CHECK(refusal(settings(bomb + "]")).find("too many or too deeply nested") != std::string::npos);
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
  CHECK(error_of([] { find_access({"dev", ""}); }).find("no kubeconfig exists; set KUBECONFIG") != std::string::npos);
  machine.write(".kube/config", kubeconfig("server: 'https://home'", "token: t"));
  CHECK(find_access({})->server == "https://home");
  CHECK_THROWS_AS(find_access({"", "a/b"}), UsageError);
}

TEST_CASE("a missing, unreadable or malformed file in KUBECONFIG is an error") {
  Machine machine;
  const std::string missing = machine.directory() / "missing";
  machine.set("KUBECONFIG", missing);
  CHECK(error_of([] { find_access({}); }) == "no file in KUBECONFIG exists: " + missing);
  machine.set("KUBECONFIG", machine.directory());
  CHECK(error_of([] { find_access({}); }) ==
        "cannot read " + machine.directory().string() + " (kubeconfig): Is a directory");
  const std::string bad = machine.write("bad", "clusters:\n- name: 'c\n");
  machine.set("KUBECONFIG", bad);
  CHECK(error_of([] { find_access({}); }).starts_with(bad + ":"));
  machine.set("KUBECONFIG", machine.write("empty", ""));
  CHECK(error_of([] { find_access({}); }).find("no current context") != std::string::npos);
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
