// A file with the credentials of registries, as docker login and podman login write it.
//
// Threading: plain functions and values. Secrets are in no message.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace adaptdl::image {

// As whom to come to a registry; all empty: as anybody. Never printed.
struct Credentials {
  std::string user, password;
  std::string identity_token;  // a refresh token, in place of user and password
  std::string registry_token;  // a bearer token, sent as it is
  std::string source;          // where they are from, for messages
  bool empty() const { return user.empty() && password.empty() && identity_token.empty() && registry_token.empty(); }
};

struct AuthFile {
  std::map<std::string, Credentials> auths;    // by registry, or registry and the beginning of a repository
  std::map<std::string, std::string> helpers;  // credHelpers: the helper by registry
  std::string store;                           // credsStore: the helper of all others; empty: none
};

// `name` stands in messages. Throws Error that names it and what in it cannot be read.
AuthFile parse_auth_file(std::string_view text, const std::string& name);

// A key of such a file as host[:port][/path]: without a scheme, and without the path that older keys have after it.
// All names of Docker's own registry are docker.io.
std::string normal_key(std::string_view key);

// The entry for a repository: the longest that it begins with, as registry/a/b for registry/a/b/c; null if there is
// none, or it is empty.
std::optional<Credentials> find_auth(const AuthFile& file, const std::string& registry, const std::string& repository);

// The helper for a registry; empty: none.
std::string find_helper(const AuthFile& file, const std::string& registry);

}  // namespace adaptdl::image
