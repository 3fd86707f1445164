// The parts that pulls and pushes share; private to registry.cc and registry_push.cc.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "image/registry/registry.h"
#include "image/registry/registry_session.h"

namespace adaptdl::image {

// A source for an image: the registry, or a mirror, in which the repository may have another name.
struct Place {
  Session* session;
  std::string repository;

  std::string path(const std::string& rest) const { return "/v2/" + repository + rest; }
};

struct Registry::Impl {
  explicit Impl(RegistryOptions all) : options(std::move(all)) {}

  const RegistryOptions options;
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Session>> sessions;  // keyed by host

  Session& session(const std::string& host);
  Place own_place(const Reference& image) { return {&session(image.registry), image.repository}; }
  // Returns the mirrors, then the registry itself.
  std::vector<Place> places(const Reference& image);

  // Fetches the reference's manifest or index from a place, and checks it.
  std::variant<Manifest, Index> fetch(const Place& place, const Reference& image, const std::string& what,
                                      const std::stop_token& stop);
  // Sends a request to a place. Returns a successful response, or one whose status is in `others`; retries transient
  // failures.
  http::Response ask(const Place& place, http::Request request, const std::string& path, const Scopes& scopes,
                     const std::string& what, const std::stop_token& stop, std::initializer_list<int> others = {});
};

// Runs `call`; adds what was attempted, and the remedy, to connection and certificate errors.
template <class Call>
auto explained(const std::string& what, const std::string& host, Call call) {
  try {
    return call();
  } catch (const http::ConnectionError& error) {
    throw Error(fmt::format("{}: request to the registry '{}' failed: {}", what, host, error.reason()));
  } catch (const http::TlsError& error) {
    throw Error(
        fmt::format("{}: the registry '{}' is not trusted: {}; if it uses its own certificate authority, put the "
                    "authority's certificate into /etc/docker/certs.d/{}/ca.crt",
                    what, host, error.reason(), host));
  }
}

}  // namespace adaptdl::image
