#include "image/registry/credential_helper.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "base/foreign_json.h"
#include "base/helper_program.h"
#include "base/printable.h"
#include "http/http.h"

namespace adaptdl::image {
namespace {

using nlohmann::json;

bool is_helper_name(const std::string& name) {
  return !name.empty() && name.size() <= 100 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > ' ' && c < 0x7f && c != '/'; });
}

std::optional<Credentials> ask(const std::string& program, const std::string& server,
                               std::chrono::milliseconds patience, const std::stop_token& stop) {
  using End = HelperOutcome::End;
  const HelperOutcome done = run_helper({program, {"get"}, {}, server}, patience, stop);
  switch (done.end) {
    case End::kNotStarted:
      throw Error(done.code == ENOENT ? std::string("not found in PATH")
                                      : fmt::format("cannot be started: {}", std::strerror(done.code)));
    case End::kStopped:
      throw http::Stopped();
    case End::kTimeOver:
      throw Error(fmt::format("timed out after {:.3g}s", std::chrono::duration<double>(patience).count()));
    case End::kTooMuch:
      throw Error(fmt::format("its output is larger than {} MiB", kMaxHelperOutput >> 20));
    case End::kSignalled:
      throw Error(fmt::format("killed by signal {}", done.code));
    case End::kExited:
      break;
  }
  if (done.code == 0) return parse_helper_answer(done.output);
  const std::string why = one_line(done.output, 300);
  if (why.find("credentials not found") != std::string::npos) return {};
  throw Error(fmt::format("failed with exit code {}{}{}", done.code, why.empty() ? "" : ": ", why));
}

}  // namespace

Credentials parse_helper_answer(const std::string& text) {
  const json answer = parse_foreign_json(text);
  const auto at = [&](const char* key) {
    const auto found = answer.find(key);
    return found != answer.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (!answer.is_object()) throw Error("its output is not a JSON object");
  Credentials credentials{at("Username"), at("Secret"), "", "", ""};
  if (credentials.user.empty() || credentials.password.empty()) throw Error("its output lacks a Username or a Secret");
  if (credentials.user == "<token>") {
    credentials.identity_token = std::move(credentials.password);
    credentials.user.clear();
    credentials.password.clear();
  }
  return credentials;
}

std::optional<Credentials> ask_helper(const std::string& name, const std::string& server,
                                      std::chrono::milliseconds patience, const std::stop_token& stop) {
  const std::string program = "docker-credential-" + name;
  try {
    if (!is_helper_name(name)) throw Error("invalid program name");
    std::optional<Credentials> credentials = ask(program, server, patience, stop);
    if (credentials) credentials->source = program;
    return credentials;
  } catch (const http::Stopped&) {
    throw;
  } catch (const Error& error) {
    throw Error(fmt::format("credential helper '{}' for '{}': {}", one_line(program, 200), server, error.what()));
  }
}

}  // namespace adaptdl::image
