// A connected, encrypted byte stream to an API server, created by libcurl. It is available as a file descriptor that
// carries plain bytes, so that any library can use it.
#pragma once

#include <memory>
#include <string>

namespace adaptdl::kube {

class RawConnection {
 public:
  virtual ~RawConnection() = default;
  // Returns a connected, blocking local stream socket, owned by this object: bytes written to it are sent to the
  // server, and bytes from the server can be read from it. End of file: the server closed, or the connection broke.
  virtual int fd() const = 0;
  // The Host header and the path prefix for requests on the connection.
  virtual const std::string& host() const = 0;
  virtual const std::string& path_prefix() const = 0;
};

}  // namespace adaptdl::kube
