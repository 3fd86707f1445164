#include "image/registry/auth_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "base/base64.h"
#include "base/foreign_json.h"
#include "base/printable.h"
#include "image/registry/reference.h"

namespace adaptdl::image {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_file(const std::string& name, const std::string& why) {
  throw Error(fmt::format("cannot read the credentials in '{}': {}", name, why));
}

const json* member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string credential_text(const json& object, const char* key, const std::string& where, const std::string& name) {
  const json* const value = member(object, key);
  if (!value) return "";
  if (!value->is_string()) refuse_file(name, fmt::format("{}: '{}' is not a string", where, key));
  return value->get<std::string>();
}

Credentials parse_entry(const json& entry, const std::string& where, const std::string& name) {
  if (!entry.is_object()) refuse_file(name, where + " is not an object");
  Credentials credentials{
      credential_text(entry, "username", where, name), credential_text(entry, "password", where, name),
      credential_text(entry, "identitytoken", where, name), credential_text(entry, "registrytoken", where, name), name};
  const std::string auth = credential_text(entry, "auth", where, name);
  if (auth.empty()) return credentials;
  const std::optional<std::string> pair = decode_base64(auth);
  const std::size_t colon = pair ? pair->find(':') : std::string::npos;
  if (colon == std::string::npos) refuse_file(name, where + ": 'auth' is not base64-encoded user:password");
  credentials.user = pair->substr(0, colon);
  credentials.password = pair->substr(colon + 1);
  while (credentials.password.ends_with('\0')) credentials.password.pop_back();
  return credentials;
}

bool is_hub(std::string_view host) {
  return host == "docker.io" || host == "index.docker.io" || host == "registry-1.docker.io";
}

}  // namespace

AuthFile parse_auth_file(std::string_view text, const std::string& name) {
  AuthFile file;
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return file;
  const json content = parse_foreign_json(text);
  if (!content.is_object()) refuse_file(name, "not a JSON object");
  if (const json* const auths = member(content, "auths")) {
    if (!auths->is_object()) refuse_file(name, "'auths' is not an object");
    for (const auto& [key, entry] : auths->items())
      if (!entry.is_null())
        file.auths.emplace(key, parse_entry(entry, fmt::format("the entry for '{}'", one_line(key, 300)), name));
  }
  if (const json* const helpers = member(content, "credHelpers")) {
    if (!helpers->is_object()) refuse_file(name, "'credHelpers' is not an object");
    for (const auto& [key, helper] : helpers->items()) {
      if (!helper.is_string())
        refuse_file(name, fmt::format("the helper for '{}' is not a string", one_line(key, 300)));
      file.helpers.emplace(key, helper.get<std::string>());
    }
  }
  file.store = credential_text(content, "credsStore", "the file", name);
  return file;
}

std::string normal_key(std::string_view key) {
  const std::size_t scheme = key.find("://");
  if (scheme != std::string_view::npos) key.remove_prefix(scheme + 3);
  while (key.ends_with('/')) key.remove_suffix(1);
  const std::size_t slash = key.find('/');
  const std::string_view host = key.substr(0, slash);
  std::string_view path = slash == std::string_view::npos ? "" : key.substr(slash);
  if (scheme != std::string_view::npos || path == "/v1" || path == "/v2") path = "";
  return fmt::format("{}{}", is_hub(host) ? kDockerHub : host, path);
}

std::optional<Credentials> find_auth(const AuthFile& file, const std::string& registry, const std::string& repository) {
  const auto find = [&](const std::string& key) -> const Credentials* {
    if (const auto exact = file.auths.find(key); exact != file.auths.end() && !exact->second.empty())
      return &exact->second;
    for (const auto& [name, credentials] : file.auths)
      if (!credentials.empty() && normal_key(name) == key) return &credentials;
    return nullptr;
  };
  std::string key = normal_key(registry);
  if (!repository.empty()) key += "/" + repository;
  for (;;) {
    if (const Credentials* const found = find(key)) return *found;
    const std::size_t slash = key.rfind('/');
    if (slash == std::string::npos) return {};
    key.erase(slash);
  }
}

std::string find_helper(const AuthFile& file, const std::string& registry) {
  const std::string key = normal_key(registry);
  for (const auto& [name, helper] : file.helpers)
    if (normal_key(name) == key) return helper;
  return file.store;
}

}  // namespace adaptdl::image
