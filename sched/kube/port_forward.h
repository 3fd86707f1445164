// Serves a port of a pod, or of a service's ready pods, on this machine, through the API server.
//
// Bytes are passed as they are, so HTTP, redirects, WebSockets and uploads behave as if the server were here. Each
// local connection is a stream of its own; one that fails takes no other along. A service's pod that goes is replaced
// by another ready one for the connections that come after.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "kube/client.h"

namespace adaptdl::kube {

struct ForwardOptions {
  std::string name_space;
  std::string pod;                    // or
  std::string service;                // one of its ready pods
  std::string port;                   // a number or a name; of the service where one is given; empty: its only or first
  std::string address = "127.0.0.1";  // to listen on, a host name or address of this machine
  std::uint16_t local_port = 0;       // 0: a free one
};

class PortForward {
 public:
  // Listens from here on; who connects waits until it serves. Throws UsageError if the port is taken or the address not
  // this machine's.
  PortForward(Client& client, const ForwardOptions& options);
  ~PortForward();
  // Looks for the pod, so that it is known before anybody comes. Throws ApiError and Error if there is no such service
  // or pod.
  void find();
  std::uint16_t local_port() const;
  // Serves in this thread until a stop is asked for. `notice` gets a line for each connection that could not be served.
  void serve(std::stop_token stop, const std::function<void(const std::string&)>& notice);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adaptdl::kube
