#include "kube/api/credentials.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "adaptdl/error.h"
#include "base/base64.h"
#include "base/foreign_json.h"
#include "base/text_parts.h"
#include "kube/api/certificate.h"
#include "kube/api/credential_plugin.h"
#include "kube/api/file.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;
using std::chrono::system_clock;
constexpr std::chrono::seconds kReadAgain{60};  // how often files are re-read
// Time limits for a plugin. The longer limit applies if the plugin may prompt the user, who may have to log in first.
constexpr std::chrono::minutes kPluginPatience{2};
constexpr std::chrono::minutes kPersonPatience{10};

// Rejects control characters, so that a value cannot end a header and begin another.
std::string header(std::string_view name, std::string_view value, std::string_view what) {
  if (std::any_of(value.begin(), value.end(), [](unsigned char c) { return (c < ' ' && c != '\t') || c == 0x7f; }))
    throw Error(fmt::format("{} contains a line break or another control character", what));
  return fmt::format("{}: {}", name, value);
}

std::string read_pem(const Secret& secret, std::string_view what) {
  return secret.file.empty() ? secret.value : read_file(secret.file, what);
}

std::string in_utc(system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(system_clock::to_time_t(time)));
}

// Returns the expiry time (`exp`) of a token if it is a JSON Web Token that has one.
std::optional<system_clock::time_point> expiry_of(std::string_view token) {
  const std::size_t begin = token.find('.'), end = token.rfind('.');
  if (begin == std::string_view::npos || begin == end) return {};
  std::string payload(token.substr(begin + 1, end - begin - 1));
  std::replace(payload.begin(), payload.end(), '-', '+');
  std::replace(payload.begin(), payload.end(), '_', '/');
  payload.append((4 - payload.size() % 4) % 4, '=');
  const std::optional<std::string> text = decode_base64(payload);
  const json claims = parse_foreign_json(text.value_or(""));
  if (!claims.is_object() || !claims.contains("exp") || !claims["exp"].is_number()) return {};
  const double seconds = claims["exp"].get<double>();
  if (!(seconds > 0 && seconds < 9e9)) return {};
  return system_clock::from_time_t(static_cast<std::time_t>(seconds));
}

std::string escape_key(std::string_view key) {
  std::string escaped;
  for (const char c : key) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
    escaped += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return escaped;
}

std::vector<std::string> impersonation(const Access& access) {
  std::vector<std::string> headers;
  constexpr std::string_view kWhat = "the identity to impersonate";
  if (!access.impersonate_user.empty()) headers.push_back(header("Impersonate-User", access.impersonate_user, kWhat));
  if (!access.impersonate_uid.empty()) headers.push_back(header("Impersonate-Uid", access.impersonate_uid, kWhat));
  for (const std::string& group : access.impersonate_groups)
    headers.push_back(header("Impersonate-Group", group, kWhat));
  for (const auto& [key, values] : access.impersonate_extra)
    for (const std::string& value : values)
      headers.push_back(header("Impersonate-Extra-" + escape_key(key), value, kWhat));
  return headers;
}

// Returns the token from the file if the file exists, otherwise the inline token. kubectl does the same.
std::string token_of(const Access& access) {
  if (access.token.file.empty()) return access.token.value;
  const std::string what = fmt::format("the token of user '{}'", access.user);
  if (access.token.value.empty()) return std::string(trimmed(read_file(access.token.file, what)));
  const std::optional<std::string> text = read_if_there(access.token.file, what);
  return text ? std::string(trimmed(*text)) : access.token.value;
}

std::chrono::milliseconds patience_of(const ExecPlugin& plugin) {
  if (plugin.input != ExecPlugin::Input::kNever && ::isatty(0) == 1) return kPersonPatience;
  return kPluginPatience;
}

void check_certificate(const Access& access, const std::string& pem) {
  const std::optional<Certificate> certificate = read_certificate(pem);
  if (!certificate) throw Error(fmt::format("the client certificate of user '{}' is not valid PEM", access.user));
  if (certificate->expires < system_clock::now())
    throw Error(fmt::format("the client certificate of user '{}' in context '{}' expired at {}; get a new kubeconfig",
                            access.user, access.context, in_utc(certificate->expires)));
}

}  // namespace

Credentials::Credentials(Access access) : access_(std::move(access)) {}

Authorization Credentials::current() {
  const std::lock_guard lock(mutex_);
  const bool has_files = !access_.token.file.empty() || !access_.client_certificate.file.empty();
  const bool old = has_files && Clock::now() - read_at_ > kReadAgain;
  if (answer_ && answer_->expires && system_clock::now() >= *answer_->expires) answer_.reset(), known_ = false;
  if (!known_ || old) refresh();
  return authorization_;
}

void Credentials::refresh() {
  Authorization next;
  // Secrets are sent only over encrypted connections.
  const bool encrypted = access_.server.starts_with("https://");
  std::string token = encrypted ? token_of(access_) : "";
  const bool basic = encrypted && token.empty() && (!access_.username.empty() || !access_.password.empty());
  if (encrypted && !access_.client_certificate.empty()) {
    next.certificate =
        read_pem(access_.client_certificate, fmt::format("the client certificate of user '{}'", access_.user));
    next.key = read_pem(access_.client_key, fmt::format("the client key of user '{}'", access_.user));
  }
  if (encrypted && access_.exec && token.empty() && !basic) {
    if (!answer_) answer_ = ask_plugin(access_, patience_of(*access_.exec));
    token = answer_->token;
    if (next.certificate.empty()) next.certificate = answer_->certificate, next.key = answer_->key;
  }
  if (!next.certificate.empty()) check_certificate(access_, next.certificate);
  if (!token.empty())
    next.headers.push_back(
        header("Authorization", "Bearer " + token, fmt::format("the token of user '{}'", access_.user)));
  else if (basic)
    next.headers.push_back("Authorization: Basic " + encode_base64(access_.username + ":" + access_.password));
  for (std::string& line : impersonation(access_)) next.headers.push_back(std::move(line));
  next.version = authorization_.version + 1;
  authorization_ = std::move(next);
  known_ = true;
  read_at_ = Clock::now();
}

bool Credentials::refused(std::uint64_t version) {
  const std::lock_guard lock(mutex_);
  if (access_.token.file.empty() && access_.client_certificate.file.empty() && !access_.exec) return false;
  if (version == authorization_.version) answer_.reset(), known_ = false;
  return true;
}

std::string Credentials::in_words() {
  const std::lock_guard lock(mutex_);
  std::string words = fmt::format("user '{}' in context '{}'", access_.user, access_.context);
  if (!access_.impersonate_user.empty()) words += fmt::format(", impersonating '{}'", access_.impersonate_user);
  if (!access_.server.starts_with("https://"))
    return words + ", without credentials because the connection is not encrypted";
  constexpr std::string_view kBearer = "Authorization: Bearer ";
  for (const std::string& line : authorization_.headers) {
    if (!line.starts_with(kBearer)) continue;
    const auto expires = expiry_of(std::string_view(line).substr(kBearer.size()));
    if (expires && *expires < system_clock::now())
      words += fmt::format(", with a token that expired at {}", in_utc(*expires));
  }
  if (authorization_.headers.empty() && authorization_.certificate.empty()) words += ", without credentials";
  return words;
}

}  // namespace adaptdl::kube
