// Runs a command in a container, or attaches to the container's own process, over SPDY or a WebSocket (channels.h).
//
// Threading: one thread may write while another reads. Lifetime: destroying a Session closes the connection, but old
// servers let the command continue. The command never receives an end of file, so its input must mark its own end (with
// a size or an end marker).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kube/api/client.h"

namespace adaptdl::kube {

struct ExecOptions {
  std::string name_space, pod, container;  // if `container` is empty: the pod's default container
  std::vector<std::string> command;        // empty: attach to the container's process
  bool in = false, out = true, err = true, tty = false;
};

class Session {
 public:
  // Throws ApiError (no such pod, forbidden) and http::ConnectionError.
  Session(Client& client, const ExecOptions& options);
  ~Session();

  enum class From { kOut, kErr };
  // Waits for output and passes it to `sink`. Returns false when the command has ended; `exit_code` is then known.
  // Throws http::ConnectionError if the connection breaks first.
  bool read(const std::function<void(From, std::string_view)>& sink);

  // Waits until the bytes are sent. Throws http::ConnectionError.
  void write(std::span<const std::byte> bytes);
  // Returns the command's exit code. Must be called only after `read` has returned false. Throws an Error with the
  // reason if the command could not be run.
  int exit_code() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct Finished {
  int exit_code;
  std::string out, err;
};
// Runs a command until it ends. Throws Error if its output exceeds `limit` bytes.
Finished run(Client& client, const ExecOptions& options, std::size_t limit = std::size_t{16} << 20);

}  // namespace adaptdl::kube
