// A connected byte stream to a server, through TLS and proxies, as a descriptor that carries plain bytes.
//
// Threading: an internal thread forwards the bytes; one thread may read the descriptor while another writes to it.
// Lifetime: the connection ends when the object is destroyed. Bytes that were written before then are still sent if the
// server accepts them immediately.
#pragma once

#include <memory>

#include "http/http.h"

namespace adaptdl::http {

class Tunnel {
 public:
  // Connects to the host of the request's URL; HTTP is used only to talk to a proxy. Throws ConnectionError, TlsError
  // or Error.
  explicit Tunnel(const Request& request);
  ~Tunnel();
  // Returns a connected, blocking local stream socket, owned by this object. End of file means that the server closed
  // the connection or that the connection broke. Shutting down the sending side of the socket ends the connection once
  // everything has been sent.
  int fd() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adaptdl::http
