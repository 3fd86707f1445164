// How registries are reached.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "http/http.h"
#include "image/registry_auth.h"
#include "image/retry.h"

namespace adaptdl::image {

struct RegistryOptions {
  AuthOptions auth;
  // Registries (host[:port]) without TLS. Those of this machine itself are tried with TLS first, then without.
  std::set<std::string> plain_http;
  // By registry: host[:port][/prefix] of its mirrors, in the order in which they are asked for what is pulled, before
  // the registry itself. With "http://" before it, a mirror is reached without TLS.
  std::map<std::string, std::vector<std::string>> mirrors;
  // Files of PEM certificates that are trusted besides the system's.
  std::vector<std::filesystem::path> authorities;
  // Directories with a directory HOST[:PORT] of certificates *.crt for that registry alone, and perhaps a client's
  // (NAME.cert and NAME.key).
  std::vector<std::filesystem::path> certificate_directories = {"/etc/docker/certs.d", "/etc/containers/certs.d"};
  std::string proxy;        // empty: the environment's
  std::uint64_t chunk = 0;  // bytes of a blob that go up in one request; 0: all of it, which costs the fewest requests
  RetryRule retry;
  // A connection that carries nothing for so long is broken; 0: any pause is borne. To check a large blob takes a
  // registry some time, too.
  std::chrono::seconds stall{120};
};

// The certificates for a host[:port], by the options; null: the system's, and nothing else. Throws Error for files that
// cannot be read.
std::shared_ptr<const http::Tls> tls_for(const std::string& host, const RegistryOptions& options);

}  // namespace adaptdl::image
