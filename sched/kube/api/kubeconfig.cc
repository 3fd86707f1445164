#include "kube/api/kubeconfig.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "adaptdl/error.h"
#include "base/base64.h"
#include "base/printable.h"
#include "kube/api/file.h"
#include "kube/api/in_cluster.h"
#include "kube/api/yaml_documents.h"

namespace adaptdl::kube {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Pointer = json::json_pointer;

constexpr std::string_view kKubeconfig = "kubeconfig";
constexpr std::size_t kNamesShown = 10;

struct File {
  YamlDocument document;
  fs::path directory;  // of the file; relative paths in it are resolved against it
};
using Files = std::vector<File>;  // in order of precedence

File parse_file(std::string_view text, const std::string& name, fs::path directory) {
  std::vector<YamlDocument> documents = parse_yaml_documents(text, name);
  if (documents.empty()) documents.emplace_back().name = name;
  YamlDocument& document = documents.front();
  if (!document.value.is_null() && !document.value.is_object())
    document.fail(Pointer(), "not a kubeconfig; expected clusters, users and contexts");
  return {std::move(document), std::move(directory)};
}

// A value in a kubeconfig. If a key is missing or its value is null, functions for values under a key return an empty
// value; if the value has another type, they throw Error.
class Entry {
 public:
  explicit Entry(const File& file, Pointer at = Pointer()) : file_(&file), at_(std::move(at)) {}

  [[noreturn]] void fail(std::string_view why) const { file_->document.fail(at_, why); }

  const json* value() const { return file_->document.find(at_); }
  const json* mapping() const { return file_->document.mapping(at_); }

  std::optional<Entry> find(std::string_view key) const {
    mapping();
    Entry entry(*file_, at_ / std::string(key));
    return entry.value() == nullptr ? std::nullopt : std::optional(std::move(entry));
  }

  std::vector<Entry> list(std::string_view key) const {
    const std::optional<Entry> entry = find(key);
    std::vector<Entry> items;
    for (std::size_t i = 0; entry && i < file_->document.list(entry->at_)->size(); ++i)
      items.emplace_back(*file_, entry->at_ / i);
    return items;
  }

  std::string text(std::string_view key) const {
    const std::optional<Entry> entry = find(key);
    return entry ? file_->document.text(entry->at_) : "";
  }

  std::vector<std::string> texts(std::string_view key) const {
    std::vector<std::string> texts;
    for (const Entry& item : list(key)) texts.push_back(file_->document.text(item.at_));
    return texts;
  }

  bool flag(std::string_view key) const {
    const std::optional<Entry> entry = find(key);
    if (entry && !entry->value()->is_boolean()) entry->fail(fmt::format("'{}' must be true or false", key));
    return entry && entry->value()->get<bool>();
  }

  // Returns the path under a key, resolved against the kubeconfig's directory.
  std::string path(std::string_view key) const {
    const std::string path = text(key);
    return path.empty() ? "" : (directory() / path).lexically_normal().string();
  }

  // Returns the value under a key, decoded from base64.
  std::string data(std::string_view key) const {
    const std::optional<std::string> bytes = decode_base64(text(key));
    if (!bytes) find(key)->fail(fmt::format("'{}' is not valid base64", key));
    return *bytes;
  }

  const fs::path& directory() const { return file_->directory; }

 private:
  const File* file_;
  Pointer at_;
};

std::string names_of(const Files& files) {
  std::vector<std::string> names;
  for (const File& file : files) names.push_back(file.document.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// Returns the item with this name in `list`, from the first file that contains such an item.
std::optional<Entry> named(const Files& files, std::string_view list, std::string_view name) {
  for (const File& file : files) {
    std::optional<Entry> found;
    for (const Entry& item : Entry(file).list(list)) {
      if (item.text("name") != name) continue;
      if (found) item.fail(fmt::format("duplicate name '{}' in {}", name, list));
      found = item;
    }
    if (found) return found;
  }
  return {};
}

std::string contexts_of(const Files& files) {
  std::vector<std::string> names;
  for (const File& file : files)
    for (const Entry& context : Entry(file).list("contexts")) names.push_back(context.text("name"));
  if (names.empty()) return "none exists; create one with kubectl config set-context";
  const bool more = names.size() > kNamesShown;
  names.resize(std::min(names.size(), kNamesShown));
  return fmt::format("available: {}{}", fmt::join(names, ", "), more ? ", ..." : "");
}

std::string chosen_context(const Files& files, const AccessChoice& choice) {
  if (!choice.context.empty()) return choice.context;
  for (const File& file : files)
    if (const std::string name = Entry(file).text("current-context"); !name.empty()) return name;
  const bool any = std::ranges::any_of(files, [](const File& file) { return !Entry(file).list("contexts").empty(); });
  if (!any)
    throw Error(one_line(fmt::format("{}: no contexts; create one with kubectl config set-context", names_of(files))));
  throw Error(
      one_line(fmt::format("{}: no current context; choose one with --context or kubectl config use-context ({})",
                           names_of(files), contexts_of(files))));
}

bool is_label(std::string_view name) {
  const auto is_inner = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  return !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), is_inner) && name.front() != '-' &&
         name.back() != '-';
}

Secret secret(const Entry& entry, std::string_view key) {
  Secret secret{entry.data(fmt::format("{}-data", key)), entry.path(key)};
  if (!secret.value.empty() && !secret.file.empty())
    entry.fail(fmt::format("'{0}' and '{0}-data' are mutually exclusive; remove one", key));
  return secret;
}

// Returns the server's URL with a scheme, and without a query, a fragment or trailing slashes.
std::string server_of(const Entry& entry, bool encrypted) {
  std::string server = entry.text("server");
  const auto refuse = [&](std::string_view why) { entry.find("server")->fail(why); };
  if (server.empty()) entry.fail("the cluster has no 'server'; expected a URL such as https://host:6443");
  if (server.find("://") == std::string::npos) server = (encrypted ? "https://" : "http://") + server;
  if (!server.starts_with("https://") && !server.starts_with("http://"))
    refuse("'server' must begin with https:// or http://");
  server = server.substr(0, server.find_first_of("?#"));
  const std::size_t host = server.find("://") + 3;
  const std::string authority = server.substr(host, server.find('/', host) - host);
  if (authority.find('@') != std::string::npos) refuse("'server' must not contain a user; set it under 'users'");
  if (authority.empty()) refuse("'server' has no host");
  if (std::any_of(server.begin(), server.end(), [](unsigned char c) { return c <= ' ' || c == 0x7f; }))
    refuse("'server' must not contain spaces or control characters");
  while (server.ends_with('/')) server.pop_back();
  return server;
}

void read_cluster(const Entry& entry, Access& access) {
  access.certificate_authority = secret(entry, "certificate-authority");
  access.insecure_skip_tls_verify = entry.flag("insecure-skip-tls-verify");
  if (access.insecure_skip_tls_verify && !access.certificate_authority.empty())
    entry.fail("a certificate authority and 'insecure-skip-tls-verify' are mutually exclusive; remove one");
  access.tls_server_name = entry.text("tls-server-name");
  access.proxy_url = entry.text("proxy-url");
  const bool known_proxy = access.proxy_url.starts_with("http://") || access.proxy_url.starts_with("https://") ||
                           access.proxy_url.starts_with("socks5://") || access.proxy_url.starts_with("socks5h://");
  if (!access.proxy_url.empty() && !known_proxy)
    entry.find("proxy-url")->fail("'proxy-url' must begin with http://, https://, socks5:// or socks5h://");
}

std::string plugin_settings(const Entry& cluster) {
  for (const Entry& extension : cluster.list("extensions"))
    if (extension.text("name") == "client.authentication.k8s.io/exec")
      if (const std::optional<Entry> settings = extension.find("extension")) return settings->value()->dump();
  return "";
}

ExecPlugin read_plugin(const Entry& entry, const Entry& cluster) {
  ExecPlugin plugin;
  plugin.command = entry.text("command");
  if (plugin.command.empty()) entry.fail("the plugin has no 'command'");
  plugin.api_version = entry.text("apiVersion");
  const std::string_view version = plugin.api_version;
  constexpr std::string_view kGroup = "client.authentication.k8s.io/";
  if (!version.starts_with(kGroup) ||
      (version != "client.authentication.k8s.io/v1" && version != "client.authentication.k8s.io/v1beta1" &&
       version != "client.authentication.k8s.io/v1alpha1"))
    entry.fail("the plugin's 'apiVersion' must be client.authentication.k8s.io/v1 (or v1beta1, v1alpha1)");
  plugin.install_hint = entry.text("installHint");
  plugin.arguments = entry.texts("args");
  for (const Entry& variable : entry.list("env")) {
    const std::string name = variable.text("name");
    if (name.empty() || name.find('=') != std::string::npos)
      variable.fail("the plugin has an environment variable without a valid name");
    plugin.environment[name] = variable.text("value");
  }
  plugin.provide_cluster_info = entry.flag("provideClusterInfo");
  const std::string input = entry.text("interactiveMode");
  if (input == "Never")
    plugin.input = ExecPlugin::Input::kNever;
  else if (input == "Always")
    plugin.input = ExecPlugin::Input::kAlways;
  else if (!input.empty() && input != "IfAvailable")
    entry.fail("'interactiveMode' must be Never, IfAvailable or Always");
  if (plugin.provide_cluster_info) plugin.config = plugin_settings(cluster);
  plugin.directory = entry.directory().string();
  return plugin;
}

[[noreturn]] void refuse_provider(const Entry& entry) {
  const std::string name = entry.text("name");
  std::string way_out = "get a kubeconfig with an 'exec' plugin from your provider";
  if (name == "gcp") way_out = "install gke-gcloud-auth-plugin and run: gcloud container clusters get-credentials NAME";
  if (name == "azure") way_out = "install kubelogin and run: kubelogin convert-kubeconfig";
  if (name == "oidc") way_out = "install kubelogin (kubectl oidc-login) and use it as an 'exec' plugin";
  entry.fail(fmt::format("auth-provider '{}' is no longer supported (kubectl removed it as well); {}", name, way_out));
}

void read_impersonation(const Entry& entry, Access& access) {
  access.impersonate_user = entry.text("as");
  access.impersonate_uid = entry.text("as-uid");
  access.impersonate_groups = entry.texts("as-groups");
  if (const std::optional<Entry> extra = entry.find("as-user-extra"))
    for (const auto& field : extra->mapping()->items())
      if (auto texts = extra->texts(field.key()); !texts.empty())
        access.impersonate_extra[field.key()] = std::move(texts);
  const bool more =
      !access.impersonate_uid.empty() || !access.impersonate_groups.empty() || !access.impersonate_extra.empty();
  if (more && access.impersonate_user.empty()) entry.fail("'as-uid', 'as-groups' and 'as-user-extra' require 'as'");
}

void read_user(const Entry& entry, const Entry& cluster, Access& access) {
  access.client_certificate = secret(entry, "client-certificate");
  access.client_key = secret(entry, "client-key");
  if (access.client_certificate.empty() != access.client_key.empty())
    entry.fail(access.client_key.empty() ? "the user has a client certificate, but no 'client-key'"
                                         : "the user has a client key, but no 'client-certificate'");
  access.token = {entry.text("token"), entry.path("tokenFile")};
  access.username = entry.text("username");
  access.password = entry.text("password");
  if (!access.token.value.empty() && (!access.username.empty() || !access.password.empty()))
    entry.fail("a token and a user name with a password are mutually exclusive; remove one");
  read_impersonation(entry, access);
  const std::optional<Entry> provider = entry.find("auth-provider");
  if (const std::optional<Entry> exec = entry.find("exec")) {
    if (provider) provider->fail("'auth-provider' and 'exec' are mutually exclusive; remove 'auth-provider'");
    access.exec = read_plugin(*exec, cluster);
  } else if (provider) {
    refuse_provider(*provider);
  }
}

// Returns the entry to which a context refers by `key`, such as its "cluster".
Entry part_of(const Files& files, const Entry& context, const std::string& name, std::string_view key,
              std::string_view list) {
  const std::string wanted = context.text(key);
  if (wanted.empty()) context.fail(fmt::format("context '{}' has no {}", name, key));
  const std::optional<Entry> part = named(files, list, wanted);
  if (!part) context.fail(fmt::format("context '{}' refers to {} '{}', which does not exist", name, key, wanted));
  const std::optional<Entry> body = part->find(key);
  if (!body) part->fail(fmt::format("{} '{}' is empty", key, wanted));
  return *body;
}

Access access_of(const Files& files, const AccessChoice& choice) {
  Access access;
  access.context = chosen_context(files, choice);
  const std::optional<Entry> item = named(files, "contexts", access.context);
  if (!item)
    throw Error(
        one_line(fmt::format("{}: context '{}' not found ({})", names_of(files), access.context, contexts_of(files))));
  const std::optional<Entry> context = item->find("context");
  if (!context) item->fail(fmt::format("context '{}' is empty", access.context));
  const Entry cluster = part_of(files, *context, access.context, "cluster", "clusters");
  const Entry user = part_of(files, *context, access.context, "user", "users");
  access.user = one_line(context->text("user"));
  read_cluster(cluster, access);
  read_user(user, cluster, access);
  access.server = server_of(cluster, access.insecure_skip_tls_verify || !access.certificate_authority.empty() ||
                                         !access.client_certificate.empty());
  const std::string name_space = context->text("namespace");
  if (!name_space.empty() && !is_label(name_space))
    context->fail(fmt::format("'{}' is not a valid namespace", name_space));
  if (!name_space.empty()) access.name_space = name_space;
  if (!choice.name_space.empty()) access.name_space = choice.name_space;
  access.context = one_line(access.context);
  return access;
}

}  // namespace

std::vector<fs::path> kubeconfig_files() {
  if (const char* list = std::getenv("KUBECONFIG"); list && *list) {
    std::vector<fs::path> files;
    std::string_view rest = list;
    while (!rest.empty()) {
      const std::string_view file = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(file.size() + 1, rest.size()));
      if (!file.empty() && std::find(files.begin(), files.end(), file) == files.end()) files.emplace_back(file);
    }
    return files;
  }
  const char* home = std::getenv("HOME");
  if (!home || !*home) return {};
  return {fs::path(home) / ".kube" / "config"};
}

std::optional<Access> find_access(const AccessChoice& choice) {
  if (!choice.name_space.empty() && !is_label(choice.name_space))
    throw UsageError(fmt::format("'{}' is not a valid namespace", choice.name_space));
  const std::vector<fs::path> paths = kubeconfig_files();
  Files files;
  bool empty = true;
  for (const fs::path& path : paths) {
    const std::optional<std::string> text = read_if_there(path, kKubeconfig);
    if (!text) continue;
    empty = empty && text->find_first_not_of(" \t\r\n") == std::string::npos;
    files.push_back(parse_file(*text, path.string(), fs::absolute(path).parent_path()));
  }
  if (empty && choice.context.empty())
    if (std::optional<Access> access = in_cluster_access(choice.name_space)) return access;
  if (!files.empty()) return access_of(files, choice);
  if (const char* list = std::getenv("KUBECONFIG"); list && *list)
    throw Error(fmt::format("no file in KUBECONFIG exists: {}", list));
  if (choice.context.empty()) return {};
  throw Error(fmt::format("context '{}' not found: no kubeconfig exists; set KUBECONFIG, or create '{}'",
                          choice.context, paths.empty() ? "~/.kube/config" : paths.front().string()));
}

Access parse_kubeconfig(std::string_view yaml, const fs::path& directory, const AccessChoice& choice) {
  return access_of({parse_file(yaml, "kubeconfig", directory)}, choice);
}

}  // namespace adaptdl::kube
