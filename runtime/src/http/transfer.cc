#include "http/transfer.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/socket.h"
#include "http/url.h"

namespace adaptdl::http {
namespace {

// Makes a connection fail half a minute after its other end has silently disappeared.
int watch_socket(void*, curl_socket_t socket, curlsocktype) {
  const int on = 1, idle = 15, between = 5, probes = 3;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  return CURL_SOCKOPT_OK;
}

void append(List& list, const std::string& text) { list.reset(curl().slist_append(list.release(), text.c_str())); }

void set_blob(CURL* handle, CURLoption option, const std::string& pem) {
  curl_blob blob{const_cast<char*>(pem.data()), pem.size(), CURL_BLOB_COPY};
  if (curl().easy_setopt(handle, option, &blob) != CURLE_OK)
    throw Error(
        "this libcurl does not accept certificates from memory; install libcurl 7.77 or later, built with OpenSSL");
}

// Returns the certificates that libcurl was built to trust, if they are in one file.
const std::string& system_authorities() {
  static const std::string kept = [] {
    const char* file = nullptr;
#if LIBCURL_VERSION_NUM >= 0x075400
    curl().easy_getinfo(new_easy().get(), CURLINFO_CAINFO, &file);
#endif
    std::ifstream stream(file ? file : "");
    return std::string(std::istreambuf_iterator<char>(stream), {});
  }();
  return kept;
}

void set_tls(CURL* handle, const Tls& tls) {
  if (!tls.authority.empty()) {
    set_blob(handle, CURLOPT_CAINFO_BLOB,
             tls.system_authorities ? fmt::format("{}\n{}", tls.authority, system_authorities()) : tls.authority);
    if (!tls.system_authorities) curl().easy_setopt(handle, CURLOPT_CAPATH, nullptr);
  }
  if (!tls.certificate.empty()) set_blob(handle, CURLOPT_SSLCERT_BLOB, tls.certificate);
  if (!tls.key.empty()) set_blob(handle, CURLOPT_SSLKEY_BLOB, tls.key);
  curl().easy_setopt(handle, CURLOPT_KEYPASSWD, "");  // an encrypted key is an error, not a prompt on the terminal
  if (tls.insecure) {
    curl().easy_setopt(handle, CURLOPT_SSL_VERIFYPEER, 0L);
    curl().easy_setopt(handle, CURLOPT_SSL_VERIFYHOST, 0L);
  }
}

// libcurl takes the TLS server name only from the URL. Therefore, this function puts the name into the URL, and directs
// the connection to the real host with CONNECT_TO.
void set_server_name(CURL* handle, Url url, const std::string& name, Transfer& transfer) {
  const std::string host = url.host(), port = url.port(),
                    server = name.find(':') == std::string::npos ? name : fmt::format("[{}]", name);
  append(transfer.connect_to, fmt::format("{}:{}:{}:{}", server, url.effective_port(), host, url.effective_port()));
  curl().easy_setopt(handle, CURLOPT_CONNECT_TO, transfer.connect_to.get());
  append(transfer.headers, fmt::format("Host: {}{}{}", host, port.empty() ? "" : ":", port));
  if (!url.set_host(server)) throw Error(fmt::format("invalid TLS server name '{}'", name));
  curl().easy_setopt(handle, CURLOPT_URL, url.text().c_str());
}

void set_proxy(CURL* handle, const Request& request, const std::string& host) {
  if (request.proxy.empty()) {
    if (net::is_loopback(host)) curl().easy_setopt(handle, CURLOPT_PROXY, "");
    return;
  }
  std::string proxy = request.proxy;
  if (proxy.rfind("socks5://", 0) == 0) proxy.insert(6, "h");  // perhaps only the proxy can resolve the name
  curl().easy_setopt(handle, CURLOPT_PROXY, proxy.c_str());
  curl().easy_setopt(handle, CURLOPT_NOPROXY, "");  // the environment's NO_PROXY applies only to its own proxy
}

void set_protocols(CURL* handle) {
#if LIBCURL_VERSION_NUM >= 0x075500
  curl().easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl().easy_setopt(handle, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

// Returns whether the same request may succeed a little later.
bool may_pass(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PROXY:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_SEND_FAIL_REWIND:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
      return true;
    default:
      return false;
  }
}

bool is_about_trust(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CERTPROBLEM || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_SSL_ISSUER_ERROR;
}

}  // namespace

void set_target(CURL* handle, const Request& request, Transfer& transfer) {
  Url url(request.url);
  curl().easy_setopt(handle, CURLOPT_URL, request.url.c_str());
  curl().easy_setopt(handle, CURLOPT_ERRORBUFFER, transfer.detail);
  curl().easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl().easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_timeout.count()));
  curl().easy_setopt(handle, CURLOPT_SOCKOPTFUNCTION, watch_socket);
#if LIBCURL_VERSION_NUM >= 0x075700
  curl().easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);  // does not wait for a name server after a timeout
#endif
  // One connection per call: a large response does not delay another, and no flow-control window has to be managed.
  curl().easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set_protocols(handle);
  set_proxy(handle, request, url.host());
  if (!request.tls) return;
  set_tls(handle, *request.tls);
  if (!request.tls->server_name.empty()) set_server_name(handle, std::move(url), request.tls->server_name, transfer);
}

void set_request(CURL* handle, const Request& request, Transfer& transfer) {
  append(transfer.headers, "Expect:");  // sends the body without waiting for status 100
  set_target(handle, request, transfer);
  for (const std::string& header : request.headers) append(transfer.headers, header);
  curl().easy_setopt(handle, CURLOPT_HTTPHEADER, transfer.headers.get());
  curl().easy_setopt(handle, CURLOPT_USERAGENT, "adaptdl/" ADAPTDL_VERSION);
  curl().easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout.count()));
  if (request.compressed) curl().easy_setopt(handle, CURLOPT_ACCEPT_ENCODING, "gzip");
  const bool sends =
      !request.body.empty() || request.method == "PUT" || request.method == "POST" || request.method == "PATCH";
  if (request.read_body) {
    curl().easy_setopt(handle, CURLOPT_UPLOAD, 1L);
    curl().easy_setopt(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.read_size));
  } else if (sends) {
    curl().easy_setopt(handle, CURLOPT_POSTFIELDS, request.body.data());
    curl().easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  }
  if (request.method == "HEAD") curl().easy_setopt(handle, CURLOPT_NOBODY, 1L);
  curl().easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

void fail(CURL* handle, CURLcode code, const Request& request, const Transfer& transfer) {
  long error = 0;
  curl_off_t sent = 0;
  curl().easy_getinfo(handle, CURLINFO_OS_ERRNO, &error);
  curl().easy_getinfo(handle, CURLINFO_PRETRANSFER_TIME_T, &sent);
  std::string reason = *transfer.detail ? transfer.detail : curl().easy_strerror(code);
  if (code == CURLE_COULDNT_CONNECT && error != 0) {
    reason = std::strerror(static_cast<int>(error));
    reason[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(reason[0])));
  }
  if (code == CURLE_OPERATION_TIMEDOUT)
    reason = sent ? "timed out waiting for an answer"
                  : "timed out while connecting; check that the host is running and that no firewall blocks it";
  const std::string message = fmt::format("{} {}: {}", request.method, without_user(request.url), reason);
  if (is_about_trust(code)) throw TlsError(message, reason);
  if (may_pass(code)) throw ConnectionError(message, reason, sent > 0);
  throw Error(message);
}

}  // namespace adaptdl::http
