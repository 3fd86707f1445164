#include "image/registry/registry_session.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "base/socket.h"

namespace adaptdl::image {
namespace {

constexpr int kMaxRegistryRedirects = 5;

// `host` may contain a port.
bool is_this_machine(std::string_view host) {
  return net::is_loopback(host.starts_with('[') ? host.substr(0, host.find(']') + 1)
                                                : host.substr(0, host.find(':')));
}

// Returns the host that serves a registry. The host of Docker Hub differs from the registry's name.
std::string server_of(const std::string& registry) {
  return registry == "docker.io" ? "registry-1.docker.io" : registry;
}

// Returns the "https://host:port" part of a URL.
std::string_view origin_of(std::string_view url) {
  const std::size_t scheme = url.find("://");
  return scheme == std::string_view::npos ? "" : url.substr(0, url.find_first_of("/?#", scheme + 3));
}

std::string host_of(std::string_view url) {
  std::string_view origin = origin_of(url);
  const std::size_t scheme = origin.find("://");
  return std::string(scheme == std::string_view::npos ? "" : origin.substr(scheme + 3));
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

Session::Session(std::string host, const RegistryOptions& options) : options_(options), host_(std::move(host)) {
  constexpr std::string_view kPlain = "http://";
  if (host_.starts_with(kPlain)) {
    plain_http_ = true;
    host_.erase(0, kPlain.size());
  }
  plain_http_ = plain_http_ || options.plain_http.contains(host_);
}

void Session::prepare(http::Request& request) const {
  request.proxy = options_.proxy;
  if (request.url.starts_with("https://")) request.tls = tls_for(host_of(request.url), options_);
}

std::string Session::base(const std::stop_token& stop) {
  const std::scoped_lock lock(mutex_);
  if (!base_.empty()) return base_;
  const bool plain = plain_http_ || (is_this_machine(host_) && !speaks_tls(stop));
  authorizer_ = std::make_unique<Authorizer>(
      Authorizer::Context{host_, plain,
                          [this](const std::string& repository, const std::stop_token& end) {
                            return find_credentials(host_, repository, options_.auth, end);
                          },
                          [this](http::Request request, const std::stop_token& end) {
                            prepare(request);
                            http::Response response = connections_.send(request, end);
                            if (response.status == 0) throw http::Stopped();
                            return response;
                          }});
  return base_ = fmt::format("{}://{}", plain ? "http" : "https", server_of(host_));
}

bool Session::speaks_tls(const std::stop_token& stop) {
  const auto ask = [&](const char* scheme) {
    http::Request request;
    request.url = fmt::format("{}://{}/v2/", scheme, host_);
    prepare(request);
    const int status = connections_.send(request, stop).status;
    if (status == 0) throw http::Stopped();
    return status;
  };
  try {
    ask("https");
    return true;
  } catch (const http::TlsError&) {
    return true;  // the server speaks TLS, but is not trusted; the request itself will report that
  } catch (const http::ConnectionError&) {
    // A server with TLS answers a request without TLS with 400, if it answers at all.
    return ask("http") == 400;
  }
}

http::Response Session::authorized(http::Request& request, const Scopes& scopes, const std::stop_token& stop,
                                   const std::function<http::Response(const http::Request&)>& exchange) {
  prepare(request);
  const std::vector<std::string> headers = request.headers;
  // The first 401 may contain a challenge; a second may mean that a token has expired.
  for (int left = 2;; --left) {
    const std::string header = authorizer_->header(scopes, stop);
    request.headers = headers;
    if (!header.empty()) request.headers.push_back("Authorization: " + header);
    http::Response response = exchange(request);
    if (stop.stop_requested()) throw http::Stopped();
    if (response.status != 401 || left == 0 || !authorizer_->refused(response, header, scopes)) return response;
  }
}

http::Response Session::send(http::Request request, const Scopes& scopes, const std::stop_token& stop,
                             const std::function<void()>& rewind) {
  const bool own = origin_of(request.url) == base(stop);
  const auto exchange = [&](const http::Request& each) {
    if (rewind) rewind();
    return connections_.send(each, stop);
  };
  if (own) return authorized(request, scopes, stop, exchange);
  prepare(request);
  http::Response response = exchange(request);
  if (stop.stop_requested()) throw http::Stopped();
  return response;
}

http::Response Session::stream(http::Request request, const Scopes& scopes, const std::stop_token& stop,
                               const std::function<bool(std::string_view)>& sink,
                               const std::function<void(const http::Response&)>& begin) {
  base(stop);
  const auto exchange = [&](const http::Request& each) { return connections_.stream(each, stop, sink, begin); };
  const std::vector<std::string> headers = request.headers;
  http::Response response = authorized(request, scopes, stop, exchange);
  for (int left = kMaxRegistryRedirects; is_redirect(response.status); --left) {
    const std::string location(response.header("location"));
    const std::string next = resolve(location, request.url);
    if (location.empty() || left == 0 || (request.url.starts_with("https://") && !next.starts_with("https://")))
      throw Error(fmt::format("the registry '{}' redirects to '{}'; this redirect is not allowed", host_,
                              one_line(http::without_user(next.substr(0, next.find('?'))), 200)));
    const bool own = origin_of(next) == base(stop);
    request.url = next;
    request.headers = headers;
    if (own) {
      response = authorized(request, scopes, stop, exchange);
    } else {
      request.tls = nullptr;
      prepare(request);
      response = exchange(request);
      if (stop.stop_requested()) throw http::Stopped();
    }
  }
  return response;
}

RegistryError Session::error(const std::string& what, const http::Response& response, const Scopes& scopes,
                             const std::stop_token& stop) {
  // Credentials matter only for these refusals, and a failing helper must not hide another error.
  const bool matters = response.status == 401 || response.status == 403 || response.status == 429;
  return refusal_error(what, host_, response, matters ? authorizer_->source(scopes, stop) : "-");
}

std::string Session::resolve(const std::string& location, const std::string& base) const {
  // A registry behind a proxy that terminates TLS may not know that clients use TLS.
  if (location.starts_with("http://") && base.starts_with("https://") && host_of(location) == host_of(base))
    return "https" + location.substr(4);
  if (location.find("://") != std::string::npos) return location;
  if (location.starts_with("//")) return base.substr(0, base.find("//")) + location;
  if (location.starts_with('/')) return std::string(origin_of(base)) + location;
  const std::string path = base.substr(0, base.find_first_of("?#"));
  return path.substr(0, path.rfind('/') + 1) + location;
}

}  // namespace adaptdl::image
