// A file with registry credentials, in the format that docker login and podman login write.
//
// Secrets never appear in messages.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace adaptdl::image {

// Credentials for a registry; if all fields are empty, requests are anonymous. Must never be printed.
struct Credentials {
  std::string user, password;
  std::string identity_token;  // a refresh token, used instead of user and password
  std::string registry_token;  // a bearer token, sent unchanged
  std::string source;          // where the credentials come from, for messages
  bool empty() const { return user.empty() && password.empty() && identity_token.empty() && registry_token.empty(); }
};

struct AuthFile {
  std::map<std::string, Credentials> auths;    // keyed by registry, optionally followed by a repository path prefix
  std::map<std::string, std::string> helpers;  // credHelpers: the helper for each registry
  std::string store;                           // credsStore: the helper for all other registries; may be empty
};

// Parses a credentials file. `name` identifies the file in messages. Throws an Error that names the file and the part
// that cannot be read.
AuthFile parse_auth_file(std::string_view text, const std::string& name);

// Normalizes a key from a credentials file to host[:port][/path]: removes the scheme, and the path that older Docker
// versions append. All names of Docker Hub become docker.io.
std::string normal_key(std::string_view key);

// Returns the entry whose key is the longest prefix of the repository, for example registry/a/b for registry/a/b/c;
// nullopt if there is none. Empty entries are ignored.
std::optional<Credentials> find_auth(const AuthFile& file, const std::string& registry, const std::string& repository);

// Returns the helper for a registry; empty if there is none.
std::string find_helper(const AuthFile& file, const std::string& registry);

}  // namespace adaptdl::image
