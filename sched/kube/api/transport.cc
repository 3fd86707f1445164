#include "kube/api/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>

#include "http/tunnel.h"
#include "kube/api/file.h"
#include "kube/api/retry.h"

namespace adaptdl::kube {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxAnswerSize = std::size_t{1} << 30;
constexpr milliseconds kMinConnect(1000);  // so that even the last attempt has enough time to connect

milliseconds since(Clock::time_point start) { return std::chrono::duration_cast<milliseconds>(Clock::now() - start); }

double random_fraction() {
  thread_local std::minstd_rand generator(std::random_device{}());
  return std::uniform_real_distribution<>()(generator);
}

// Returns false if a stop was requested before the time had passed.
bool pause(milliseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  return !wake.wait_for(lock, stop, time, [&] { return stop.stop_requested(); });
}

class TunnelConnection : public RawConnection {
 public:
  TunnelConnection(const http::Request& request, std::string host, std::string path_prefix)
      : tunnel_(request), host_(std::move(host)), path_prefix_(std::move(path_prefix)) {}
  int fd() const override { return tunnel_.fd(); }
  const std::string& host() const override { return host_; }
  const std::string& path_prefix() const override { return path_prefix_; }

 private:
  http::Tunnel tunnel_;
  std::string host_, path_prefix_;
};

}  // namespace

// The credentials and the TLS settings. As long as the TLS settings do not change, tls_for() returns the same object,
// so that connections are reused.
struct Transport::Identity {
  explicit Identity(const Access& of) : access(of), credentials(of) {}

  const Access& access;
  Credentials credentials;
  std::mutex mutex;
  std::shared_ptr<const http::Tls> tls;

  std::string authority() const {
    const Secret& secret = access.certificate_authority;
    return secret.file.empty() ? secret.value : read_file(secret.file, "the certificate authority");
  }

  std::shared_ptr<const http::Tls> tls_for(const Authorization& authorization) {
    const std::scoped_lock lock(mutex);
    if (tls && tls->certificate == authorization.certificate && tls->key == authorization.key) return tls;
    auto made = std::make_shared<http::Tls>();
    if (!access.insecure_skip_tls_verify) made->authority = authority();
    made->certificate = authorization.certificate;
    made->key = authorization.key;
    made->server_name = access.tls_server_name;
    made->insecure = access.insecure_skip_tls_verify;
    return tls = made;
  }
};

Transport::Transport(Access access, Client::Options options)
    : access_(std::move(access)), options_(options), identity_(std::make_unique<Identity>(access_)) {}
Transport::~Transport() = default;

std::vector<std::string> Transport::authorization_headers() { return identity_->credentials.current().headers; }

http::Request Transport::request(const Call& call, const Authorization& authorization, milliseconds connect_timeout) {
  http::Request request;
  request.method = call.method;
  request.url = access_.server + call.path;
  char mark = '?';
  for (const auto& [key, value] : call.query) {
    request.url += fmt::format("{}{}={}", mark, http::escape(key), http::escape(value));
    mark = '&';
  }
  request.headers = authorization.headers;
  request.headers.push_back("Accept: application/json, */*");
  if (!call.content_type.empty()) request.headers.push_back("Content-Type: " + call.content_type);
  request.body = call.body;
  request.connect_timeout = std::min(options_.connect_timeout, std::max(connect_timeout, kMinConnect));
  request.timeout = options_.timeout;
  request.max_body = kMaxAnswerSize;
  request.tls = identity_->tls_for(authorization);
  request.proxy = access_.proxy_url;
  return request;
}

std::string Transport::call(const Call& call, const std::stop_token& stop) {
  const auto start = Clock::now();
  const RetryRule rule{options_.patience};
  bool asked_again = false;
  for (int attempt = 1;; ++attempt) {
    Failure failure;
    failure.read = call.method == "GET";
    std::optional<http::ConnectionError> broken;
    http::Response response;
    const Authorization authorization = identity_->credentials.current();
    try {
      response = connections_.send(request(call, authorization, options_.patience - since(start)), stop);
      if (response.status / 100 == 2) return std::move(response.body);
      if (response.status == 0) throw http::Stopped();
      failure.answered = true;
      failure.status = response.status;
      failure.retry_after = response.retry_after;
    } catch (const http::TlsError& error) {
      distrust(error);
    } catch (const http::ConnectionError& error) {
      failure.sent = error.sent();
      broken = error;
    }
    if (response.status == 401 && !asked_again) {
      asked_again = true;
      if (identity_->credentials.refused(authorization.version)) continue;
    }
    const auto wait = retry_pause(rule, failure, attempt, since(start), random_fraction());
    if (!wait) {
      if (broken) unreachable(*broken, since(start));
      refuse(call.method, call.path, response.status, response.body);
    }
    if (!pause(*wait, stop)) throw http::Stopped();
  }
}

void Transport::stream(const Call& call, const std::stop_token& stop,
                       const std::function<bool(std::string_view)>& sink) {
  const auto start = Clock::now();
  for (bool asked_again = false;; asked_again = true) {
    const Authorization authorization = identity_->credentials.current();
    http::Request what = request(call, authorization, options_.connect_timeout);
    what.timeout = milliseconds(0);
    http::Response response;
    try {
      response = connections_.stream(what, stop, sink);
    } catch (const http::TlsError& error) {
      distrust(error);
    } catch (const http::ConnectionError& error) {
      unreachable(error, since(start));
    }
    if (response.status == 0 || response.status / 100 == 2) return;
    if (response.status == 401 && !asked_again && identity_->credentials.refused(authorization.version)) continue;
    refuse(call.method, call.path, response.status, response.body);
  }
}

std::unique_ptr<RawConnection> Transport::connect() {
  const auto start = Clock::now();
  const http::Request what =
      request({"GET", "", {}, "", ""}, identity_->credentials.current(), options_.connect_timeout);
  const std::size_t begin = access_.server.find("://") + 3;
  const std::size_t slash = std::min(access_.server.find('/', begin), access_.server.size());
  const std::size_t at = access_.server.substr(0, slash).rfind('@');
  const std::size_t host = at == std::string::npos ? begin : at + 1;
  try {
    return std::make_unique<TunnelConnection>(what, access_.server.substr(host, slash - host),
                                              access_.server.substr(slash));
  } catch (const http::TlsError& error) {
    distrust(error);
  } catch (const http::ConnectionError& error) {
    unreachable(error, since(start));
  }
}

void Transport::refuse(const std::string& method, const std::string& path, int code, std::string_view body) const {
  Status status = parse_status(code, body);
  std::string message = fmt::format("{} {}: {}", method, path, status.message);
  if (code == 401) {
    message +=
        fmt::format("; the cluster does not accept {}; renew the credentials, or choose another context with --context",
                    identity_->credentials.in_words());
  } else if (code == 403) {
    message += fmt::format(
        "; the request was sent as {}; ask the cluster's administrator for permission, or choose another context with "
        "--context",
        identity_->credentials.in_words());
  }
  const bool lacks_kind =
      code == 404 && !status.details.contains("name") && path.starts_with(fmt::format("/apis/{}/", kAdaptDLJobs.group));
  if (lacks_kind)
    message = fmt::format(
        "the cluster of context '{}' does not have the resource AdaptDLJob; its administrator can install it with "
        "`adaptdl operator manifests | kubectl apply -f -`",
        access_.context);
  ApiError error(message, code, std::move(status.reason), std::move(status.details), std::move(status.continue_token),
                 std::move(status.message));
  if (lacks_kind) throw KindNotInstalled(std::move(error));
  throw error;
}

void Transport::unreachable(const http::ConnectionError& error, milliseconds tried) const {
  const std::string what =
      fmt::format("the cluster (context '{}') at {}", access_.context, http::without_user(access_.server));
  if (error.sent())
    throw http::ConnectionError(fmt::format("lost the connection to {}: {}", what, error.reason()), error.reason(),
                                true);
  throw http::ConnectionError(
      fmt::format(
          "cannot reach {}: {} (tried for {:.1f}s); is it up, and are its address and proxy in the kubeconfig correct?",
          what, error.reason(), static_cast<double>(tried.count()) / 1000),
      error.reason(), false);
}

void Transport::distrust(const http::TlsError& error) const {
  throw Error(
      fmt::format("cannot establish a TLS connection to the cluster (context '{}') at {}: {}; check "
                  "certificate-authority, tls-server-name and the client certificate in the kubeconfig",
                  access_.context, http::without_user(access_.server), error.reason()));
}

}  // namespace adaptdl::kube
