// A connected, encrypted byte stream to an API server, created by libcurl. It provides a file descriptor that carries
// the unencrypted bytes, so that any library can use it.
#pragma once

#include <memory>
#include <string>

namespace adaptdl::kube {

class RawConnection {
 public:
  virtual ~RawConnection() = default;
  // Returns a connected, blocking local stream socket, owned by this object: bytes written to it are sent to the
  // server, and bytes from the server can be read from it. End of file means that the server closed the connection or
  // that the connection broke.
  virtual int fd() const = 0;
  // The Host header and the path prefix for requests on the connection.
  virtual const std::string& host() const = 0;
  virtual const std::string& path_prefix() const = 0;
};

}  // namespace adaptdl::kube
