// Forwards a local port to a port of a pod, or of one of a service's ready pods, through the API server.
//
// Bytes are passed unchanged, so HTTP, redirects, WebSockets and uploads behave as if the server were local. Each local
// connection has its own stream, so that a failure of one connection does not affect the others. If a service's pod
// disappears, later connections use another ready pod.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "kube/api/client.h"

namespace adaptdl::kube {

struct ForwardOptions {
  std::string name_space;
  std::string pod;                    // empty if `service` is set
  std::string service;                // one of its ready pods is used
  std::string port;                   // number or name of the pod's or service's port; empty: the first
  std::string address = "127.0.0.1";  // local host name or address to listen on
  std::uint16_t local_port = 0;       // 0: a free port
};

class PortForward {
 public:
  // Starts to listen; clients that connect wait until `serve` runs. Throws UsageError if the port is in use or the
  // address does not belong to this machine.
  PortForward(Client& client, const ForwardOptions& options);
  ~PortForward();
  // Finds the pod before any client connects. Throws ApiError and Error if there is no such service or pod.
  void find();
  std::uint16_t local_port() const;
  // Serves in this thread until a stop is requested. `notice` receives a line for each connection that failed.
  void serve(std::stop_token stop, const std::function<void(const std::string&)>& notice);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adaptdl::kube
