// An HTTPS server for webhooks of the API server. To answer a POST request, it calls a function that may block.
//
// Requests are limited in size and time, and connections in number. Connections without a request are kept for longer
// than the API server keeps them, so that no request arrives on a connection that is being closed. If there are too
// many connections, the one whose client has kept the server waiting longest is closed nevertheless.
//
// Threading: kThreads threads of the server answer requests. All methods may be called from any other thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "operator/validator/serving_certificate.h"

namespace adaptdl::sched {

class WebhookServer {
 public:
  static constexpr int kThreads = 8;

  struct Answer {
    int status = 200;
    std::string body;  // JSON if the status is 200, otherwise text
  };
  // `path` is the path of the URL.
  using Handler = std::function<Answer(const std::string& path, const std::string& body)>;

  // Starts to listen. Connections are closed immediately until serve() is called. `handler` must not throw, and several
  // threads call it concurrently. A request that would exceed the limit on the total size of all requests waits for
  // other requests to end, for at most `patience`. Throws UsageError if the address is invalid, and Error if the socket
  // cannot be opened.
  WebhookServer(const std::string& address, std::uint16_t port, Handler handler,
                std::chrono::milliseconds patience = std::chrono::seconds(5));
  // Closes all connections and waits until the handlers have returned.
  ~WebhookServer();
  WebhookServer(const WebhookServer&) = delete;
  WebhookServer& operator=(const WebhookServer&) = delete;

  std::uint16_t port() const noexcept;
  // Uses this certificate for new connections. Throws Error if OpenSSL does not accept it.
  void serve(const ServingCertificate& certificate);
  // From now on, closes each connection after its next answer.
  void drain() noexcept;
  // Returns whether a request is being answered.
  bool is_answering() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adaptdl::sched
