// A connected, encrypted byte stream to an API server, made by libcurl.
//
// As a file descriptor that carries plain bytes, so that any library can speak over it. Threading: the descriptor's
// own.
#pragma once

#include <memory>
#include <string>

namespace adaptdl::kube {

class RawConnection {
 public:
  virtual ~RawConnection() = default;
  // A connected, blocking local stream socket, owned by this object; what is written arrives at the server, what the
  // server sends can be read. End of file: the server closed, or the connection broke.
  virtual int fd() const = 0;
  // The Host header and path prefix for requests on it.
  virtual const std::string& host() const = 0;
  virtual const std::string& path_prefix() const = 0;
};

}  // namespace adaptdl::kube
