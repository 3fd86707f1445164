#include "local/base/runtime_directory.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "adaptdl/error.h"

namespace adaptdl::sched {
namespace fs = std::filesystem;
namespace {

// The maximum length of a directory's path, so that the path of a socket in it fits into sockaddr_un.
constexpr std::size_t kMaxPathLength = sizeof(sockaddr_un::sun_path) - 40;

// Returns whether the path is a directory that this user owns, and not a link to one.
bool is_own_directory(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

// Creates the directory if needed, and makes it inaccessible to other users. Returns the problem if there is one.
std::optional<std::string> make_private(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return std::strerror(errno);
  if (!is_own_directory(path)) return "it is not a directory owned by this user";
  if (::chmod(path.c_str(), 0700) != 0) return std::strerror(errno);
  return std::nullopt;
}

std::optional<sockaddr_un> address(const fs::path& path) noexcept {
  sockaddr_un result{};
  result.sun_family = AF_UNIX;
  const std::string& text = path.native();
  if (text.size() >= sizeof result.sun_path) return std::nullopt;
  std::memcpy(result.sun_path, text.c_str(), text.size() + 1);
  return result;
}

}  // namespace

fs::path runtime_directory() {
  const char* variable = std::getenv("XDG_RUNTIME_DIR");
  for (const fs::path& base :
       {fs::path(variable == nullptr ? "" : variable), fs::path(fmt::format("/run/user/{}", ::geteuid()))}) {
    if (!base.is_absolute() || base.native().size() > kMaxPathLength || !is_own_directory(base)) continue;
    if (!make_private(base / "adaptdl")) return base / "adaptdl";
  }
  const fs::path last = fmt::format("/tmp/adaptdl-{}", ::geteuid());
  if (const auto problem = make_private(last)) {
    throw Error(
        fmt::format("cannot use directory '{}' for run sockets: {}; set XDG_RUNTIME_DIR to a directory that you own",
                    last.string(), *problem));
  }
  return last;
}

Fd listen_at(const fs::path& path) {
  const auto fail = [&path](const std::string& why) -> Error {
    return Error(fmt::format("cannot listen on socket '{}': {}", path.string(), why));
  };
  const auto name = address(path);
  if (!name) throw fail("the path is too long for a socket");
  Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) throw fail(std::strerror(errno));
  ::unlink(path.c_str());
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&*name), sizeof *name) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(listener.get(), SOMAXCONN) != 0) {
    throw fail(std::strerror(errno));
  }
  return listener;
}

Fd connect_to(const fs::path& path) noexcept {
  const auto name = address(path);
  Fd connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!name || !connection) return {};
  int result = 0;
  do {
    result = ::connect(connection.get(), reinterpret_cast<const sockaddr*>(&*name), sizeof *name);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? std::move(connection) : Fd();
}

Fd accept_own_user(int listener) noexcept {
  Fd connection(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection && !is_own_user(connection.get())) connection.reset();
  return connection;
}

bool is_own_user(int connection) noexcept {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

}  // namespace adaptdl::sched
