// A connected byte stream to a server, through TLS and proxies, as a descriptor that carries plain bytes.
//
// Threading: a thread of its own passes bytes on; the descriptor may be read and written by one thread each. Lifetime:
// the connection goes with the object; what was written before is still sent as far as the server takes it at once.
#pragma once

#include <memory>

#include "http/http.h"

namespace adaptdl::http {

class Tunnel {
 public:
  // Connects to the host of the request's URL; nothing of HTTP is said but to a proxy. Throws ConnectionError, TlsError
  // and Error.
  explicit Tunnel(const Request& request);
  ~Tunnel();
  // A connected, blocking local stream socket, owned by this object. End of file: the server closed, or the connection
  // broke. To shut down its sending side ends the connection once everything has been sent.
  int fd() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adaptdl::http
