#include "kube/credential_plugin.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "adaptdl/error.h"
#include "base64.h"
#include "kube/file.h"
#include "kube/one_line.h"
#include "kube/timestamp.h"
#include "local/fd.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;
using sched::Fd;
using Clock = std::chrono::steady_clock;
constexpr std::size_t kLargestAnswer = std::size_t{1} << 20;

std::string name_of(const Access& access) {
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

// The environment of this process, what the plugin is given besides, and what it is asked.
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

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Of a process that shares nothing with this one's handling of signals.
class Attributes {
 public:
  Attributes() {
    ::posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~Attributes() { ::posix_spawnattr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

// A started plugin; killed, unless it was waited for.
class Process {
 public:
  Process(const Access& access, bool interactive) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("{}: {}", name_of(access), std::strerror(errno)));
    output_ = Fd(ends[0]);
    const Fd write(ends[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    if (!interactive) ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, write.get(), 1);
    std::string command = access.exec->command;
    if (command.find('/') != std::string::npos)
      command = (std::filesystem::path(access.exec->directory) / command).lexically_normal();
    std::vector<std::string> arguments = access.exec->arguments;
    arguments.insert(arguments.begin(), command);
    std::vector<std::string> environment = environment_of(access, interactive);
    const Attributes attributes;
    const int error = ::posix_spawnp(&pid_, command.c_str(), &actions, attributes.get(), pointers(arguments).data(),
                                     pointers(environment).data());
    ::posix_spawn_file_actions_destroy(&actions);
    if (error == 0) return;
    pid_ = -1;
    const std::string& hint = access.exec->install_hint;
    throw Error(fmt::format("{} cannot be started: {}{}", name_of(access), std::strerror(error),
                            hint.empty() ? "" : "; " + one_line(hint)));
  }
  ~Process() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // All that it prints, until it closes its output. Null: the time is over.
  std::optional<std::string> read(Clock::time_point deadline, const Access& access) {
    std::string text;
    char buffer[4096];
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd readable{output_.get(), POLLIN, 0};
      const int ready = left > 0 ? ::poll(&readable, 1, static_cast<int>(left)) : 0;
      if (ready == 0) return {};
      const ssize_t count = ready > 0 ? ::read(output_.get(), buffer, sizeof buffer) : -1;
      if (count == 0) return text;
      if (count < 0 && errno != EINTR) throw Error(fmt::format("{}: {}", name_of(access), std::strerror(errno)));
      if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
      if (text.size() > kLargestAnswer)
        throw Error(fmt::format("{} prints over {} MiB", name_of(access), kLargestAnswer >> 20));
    }
  }
  // Its wait status. Null: the time is over.
  std::optional<int> wait(Clock::time_point deadline) {
    int status = 0;
    for (auto pause = std::chrono::milliseconds(1); ::waitpid(pid_, &status, WNOHANG) == 0; pause *= 2) {
      if (Clock::now() >= deadline) return {};
      std::this_thread::sleep_for(std::min(pause, std::chrono::milliseconds(50)));
    }
    pid_ = -1;
    return status;
  }

 private:
  void wait() {
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  pid_t pid_ = -1;
  Fd output_;
};

std::string text_at(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

}  // namespace

PluginAnswer parse_plugin_answer(const std::string& text, const std::string& api_version) {
  const json answer = json::parse(text, nullptr, false);
  if (!answer.is_object() || text_at(answer, "kind") != "ExecCredential") throw Error("it printed no ExecCredential");
  if (const std::string version = text_at(answer, "apiVersion"); version != api_version)
    throw Error(fmt::format("its answer is not of {}, which the kubeconfig names", api_version));
  const auto status = answer.find("status");
  if (status == answer.end() || !status->is_object()) throw Error("its answer has no status");
  PluginAnswer result{
      text_at(*status, "token"), text_at(*status, "clientCertificateData"), text_at(*status, "clientKeyData"), {}};
  if (result.certificate.empty() != result.key.empty())
    throw Error("its answer has only one of clientCertificateData and clientKeyData");
  if (result.token.empty() && result.key.empty()) throw Error("its answer has neither a token nor a certificate");
  if (const std::string expires = text_at(*status, "expirationTimestamp"); !expires.empty()) {
    result.expires = parse_time(expires);
    if (!result.expires) throw Error("its answer has an expirationTimestamp that is no time");
  }
  return result;
}

PluginAnswer ask_plugin(const Access& access, std::chrono::milliseconds patience) {
  const bool terminal = ::isatty(0) == 1;
  const ExecPlugin::Input input = access.exec->input;
  if (input == ExecPlugin::Input::kAlways && !terminal)
    throw Error(fmt::format("{} wants to ask you something, but standard input is no terminal", name_of(access)));
  const auto deadline = Clock::now() + patience;
  Process process(access, terminal && input != ExecPlugin::Input::kNever);
  const std::optional<std::string> text = process.read(deadline, access);
  const std::optional<int> status = text ? process.wait(deadline) : std::nullopt;
  if (!status)
    throw Error(fmt::format("{} has not answered within {} s", name_of(access),
                            std::chrono::duration_cast<std::chrono::seconds>(patience).count()));
  if (WIFSIGNALED(*status)) throw Error(fmt::format("{} was ended by signal {}", name_of(access), WTERMSIG(*status)));
  if (WEXITSTATUS(*status) != 0)
    throw Error(
        fmt::format("{} failed with exit code {}; run it by hand to see why", name_of(access), WEXITSTATUS(*status)));
  try {
    return parse_plugin_answer(*text, access.exec->api_version);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", name_of(access), error.what()));
  }
}

}  // namespace adaptdl::kube
