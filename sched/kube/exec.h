// A command in a container, or a container's own process, over SPDY or a WebSocket (channels.h).
//
// Threading: one thread may write while another reads. Lifetime: a Session that goes ends the connection; the command
// is then left to itself by old servers, and its input has no end, so give it one of its own (a size, an end mark).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kube/client.h"

namespace adaptdl::kube {

struct ExecOptions {
  std::string name_space, pod, container;  // an empty container: the pod's default
  std::vector<std::string> command;        // empty: attach to the container's process
  bool in = false, out = true, err = true, tty = false;
};

class Session {
 public:
  // Throws ApiError (no such pod, forbidden) and http::ConnectionError.
  Session(Client& client, const ExecOptions& options);
  ~Session();

  enum class From { kOut, kErr };
  // Waits for output and passes it on. False: the command has ended, and `exit_code` is known. Throws
  // http::ConnectionError if the connection broke before.
  bool read(const std::function<void(From, std::string_view)>& sink);

  // Waits until the bytes are on their way. Throws http::ConnectionError.
  void write(std::span<const std::byte> bytes);
  // Of the command; known when `read` said false. Throws Error where it could not be started, with the reason.
  int exit_code() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct Finished {
  int exit_code;
  std::string out, err;
};
// Runs a command to its end, with an output of at most `limit` bytes.
Finished run(Client& client, const ExecOptions& options, std::size_t limit = std::size_t{16} << 20);

}  // namespace adaptdl::kube
