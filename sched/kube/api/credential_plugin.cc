#include "kube/api/credential_plugin.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "adaptdl/error.h"
#include "base/base64.h"
#include "base/foreign_json.h"
#include "base/helper_program.h"
#include "base/printable.h"
#include "kube/api/file.h"
#include "kube/api/timestamp.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

std::string plugin_name(const Access& access) {
  return fmt::format("the credential plugin '{}' of user '{}'", one_line(access.exec->command), access.user);
}

json cluster_info(const Access& access) {
  json cluster = {{"server", access.server}};
  if (!access.tls_server_name.empty()) cluster["tls-server-name"] = access.tls_server_name;
  if (access.insecure_skip_tls_verify) cluster["insecure-skip-tls-verify"] = true;
  if (!access.proxy_url.empty()) cluster["proxy-url"] = access.proxy_url;
  const Secret& authority = access.certificate_authority;
  if (!authority.empty())
    cluster["certificate-authority-data"] = encode_base64(
        authority.file.empty() ? authority.value : read_file(authority.file, "the cluster's certificate authority"));
  if (!access.exec->config.empty()) cluster["config"] = json::parse(access.exec->config);
  return cluster;
}

// Returns this process's environment with the plugin's additions and the request in KUBERNETES_EXEC_INFO.
std::vector<std::string> environment_of(const Access& access, bool interactive) {
  const ExecPlugin& plugin = *access.exec;
  json request = {
      {"apiVersion", plugin.api_version}, {"kind", "ExecCredential"}, {"spec", {{"interactive", interactive}}}};
  if (plugin.provide_cluster_info) request["spec"]["cluster"] = cluster_info(access);
  std::map<std::string, std::string> added = plugin.environment;
  added["KUBERNETES_EXEC_INFO"] = request.dump();
  std::vector<std::string> environment;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    if (!added.contains(std::string(text.substr(0, text.find('='))))) environment.emplace_back(text);
  }
  for (const auto& [name, value] : added) environment.push_back(name + "=" + value);
  return environment;
}

HelperProgram program_of(const Access& access, bool interactive) {
  const ExecPlugin& plugin = *access.exec;
  HelperProgram program{plugin.command, plugin.arguments, environment_of(access, interactive)};
  if (plugin.command.find('/') != std::string::npos)
    program.name = (std::filesystem::path(plugin.directory) / plugin.command).lexically_normal();
  if (!interactive) program.input = "";
  return program;
}

std::string text_at(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

}  // namespace

PluginAnswer parse_plugin_answer(const std::string& text, const std::string& api_version) {
  const json answer = parse_foreign_json(text);
  if (!answer.is_object() || text_at(answer, "kind") != "ExecCredential")
    throw Error("the output is not an ExecCredential");
  if (const std::string version = text_at(answer, "apiVersion"); version != api_version)
    throw Error(fmt::format("the output must have apiVersion {}, as in the kubeconfig", api_version));
  const auto status = answer.find("status");
  if (status == answer.end() || !status->is_object()) throw Error("the output has no status");
  PluginAnswer result{
      text_at(*status, "token"), text_at(*status, "clientCertificateData"), text_at(*status, "clientKeyData"), {}};
  if (result.certificate.empty() != result.key.empty())
    throw Error("the output has only one of clientCertificateData and clientKeyData");
  if (result.token.empty() && result.key.empty()) throw Error("the output has neither a token nor a certificate");
  if (const std::string expires = text_at(*status, "expirationTimestamp"); !expires.empty()) {
    result.expires = parse_time(expires);
    if (!result.expires) throw Error("the output has an invalid expirationTimestamp");
  }
  return result;
}

PluginAnswer ask_plugin(const Access& access, std::chrono::milliseconds patience) {
  const bool terminal = ::isatty(0) == 1;
  const ExecPlugin::Input input = access.exec->input;
  if (input == ExecPlugin::Input::kAlways && !terminal)
    throw Error(fmt::format("{} requires input, but standard input is not a terminal", plugin_name(access)));
  using End = HelperOutcome::End;
  const HelperOutcome done = run_helper(program_of(access, terminal && input != ExecPlugin::Input::kNever), patience);
  const std::string& hint = access.exec->install_hint;
  switch (done.end) {
    case End::kNotStarted:
      throw Error(fmt::format("cannot start {}: {}{}", plugin_name(access), std::strerror(done.code),
                              hint.empty() ? "" : "; " + one_line(hint)));
    case End::kStopped:
    case End::kTimeOver:
      throw Error(fmt::format("{} timed out after {:.3g}s", plugin_name(access),
                              std::chrono::duration<double>(patience).count()));
    case End::kTooMuch:
      throw Error(fmt::format("{} printed more than {} MiB", plugin_name(access), kMaxHelperOutput >> 20));
    case End::kSignalled:
      throw Error(fmt::format("{} was killed by signal {}", plugin_name(access), done.code));
    case End::kExited:
      break;
  }
  if (done.code != 0)
    throw Error(fmt::format("{} failed with exit code {}; run it by hand to see why", plugin_name(access), done.code));
  try {
    return parse_plugin_answer(done.output, access.exec->api_version);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", plugin_name(access), error.what()));
  }
}

}  // namespace adaptdl::kube
