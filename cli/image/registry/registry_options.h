// Options for access to registries.
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
#include "image/registry/registry_auth.h"
#include "image/registry/retry.h"

namespace adaptdl::image {

struct RegistryOptions {
  AuthOptions auth;
  // Registries (host[:port]) without TLS. Other registries on this machine are tried with TLS first, then without.
  std::set<std::string> plain_http;
  // The mirrors of each registry, as host[:port][/prefix], in the order in which pulls try them, before the registry
  // itself. A mirror that begins with "http://" is contacted without TLS.
  std::map<std::string, std::vector<std::string>> mirrors;
  // Files with PEM certificates that are trusted in addition to the system's certificates.
  std::vector<std::filesystem::path> authorities;
  // Directories in which a subdirectory HOST[:PORT] contains certificates (*.crt) that are trusted for that registry
  // only, and optionally a client certificate (NAME.cert and NAME.key).
  std::vector<std::filesystem::path> certificate_directories = {"/etc/docker/certs.d", "/etc/containers/certs.d"};
  std::string proxy;        // empty for the environment's proxy
  std::uint64_t chunk = 0;  // bytes of a blob per upload request; 0 for the whole blob in one request
  RetryRule retry;
  // A connection without traffic for this time is considered broken; 0 means no limit. The time must be long enough for
  // a registry to verify a large blob.
  std::chrono::seconds stall{120};
};

// Returns the certificates for a host[:port]; null if only the system's are trusted. Throws Error if a file cannot be
// read.
std::shared_ptr<const http::Tls> tls_for(const std::string& host, const RegistryOptions& options);

}  // namespace adaptdl::image
