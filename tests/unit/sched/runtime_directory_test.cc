#include "local/base/runtime_directory.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adaptdl/error.h"
#include "temporary_directory.h"

namespace runtime_directory_test {

using namespace adaptdl;
namespace fs = std::filesystem;

namespace {

unsigned mode_of(const fs::path& path) {
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status.st_mode & 0777;
}

}  // namespace

TEST_CASE("the runtime directory is in XDG_RUNTIME_DIR and private to the user") {
  const testing::TemporaryDirectory directory;
  ::setenv("XDG_RUNTIME_DIR", directory.path().c_str(), 1);
  const fs::path path = sched::runtime_directory();
  CHECK(path == directory.path() / "adaptdl");
  CHECK(mode_of(path) == 0700);
  fs::permissions(path, fs::perms::all);
  CHECK(sched::runtime_directory() == path);
  CHECK(mode_of(path) == 0700);
}

TEST_CASE("an unusable XDG_RUNTIME_DIR is skipped") {
  const testing::TemporaryDirectory directory;
  const fs::path last = "/tmp/adaptdl-" + std::to_string(::geteuid());
  const bool was_there = fs::exists(last);
  const fs::path link = directory.path() / "link";
  fs::create_directory_symlink(directory.path(), link);
  fs::create_directory(directory.path() / "taken");
  fs::create_symlink("/etc", directory.path() / "taken" / "adaptdl");
  for (const std::string& variable : {std::string("relative"), std::string("/nowhere/at/all"), link.string(),
                                      (directory.path() / "taken").string(), "/" + std::string(100, 'x')}) {
    CAPTURE(variable);
    ::setenv("XDG_RUNTIME_DIR", variable.c_str(), 1);
    const std::string path = sched::runtime_directory().string();
    CHECK((path.starts_with("/run/user/") || path == last));
    CHECK(mode_of(path) == 0700);
  }
  std::error_code in_use;
  if (!was_there) fs::remove(last, in_use);
}

TEST_CASE("a socket is private to its owner and replaces a stale socket") {
  const testing::TemporaryDirectory directory;
  const fs::path path = directory.path() / "socket";
  CHECK_FALSE(sched::connect_to(path));
  { const adaptdl::Fd left = sched::listen_at(path); }
  CHECK_FALSE(sched::connect_to(path));
  const adaptdl::Fd listener = sched::listen_at(path);
  CHECK(mode_of(path) == 0600);
  CHECK_FALSE(sched::accept_own_user(listener.get()));  // no connection is pending
  const adaptdl::Fd client = sched::connect_to(path);
  REQUIRE(client);
  const adaptdl::Fd server = sched::accept_own_user(listener.get());
  REQUIRE(server);
  CHECK(sched::is_own_user(client.get()));
  REQUIRE(::send(client.get(), "x", 1, 0) == 1);
  char byte = 0;
  CHECK(::recv(server.get(), &byte, 1, 0) == 1);
  CHECK(byte == 'x');
}

TEST_CASE("another user is rejected even if file permissions allow the connection") {
  if (::geteuid() != 0) return;  // only root can become another user
  const testing::TemporaryDirectory directory;
  const fs::path path = directory.path() / "socket";
  const adaptdl::Fd listener = sched::listen_at(path);
  fs::permissions(directory.path(), fs::perms::all);
  fs::permissions(path, fs::perms::all);
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    constexpr uid_t kNobody = 65534;
    char byte = 0;
    const bool other = ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0;
    const adaptdl::Fd client = sched::connect_to(path);
    // The connection succeeds, but is closed without any data.
    ::_exit(other && client && ::recv(client.get(), &byte, 1, 0) <= 0 ? 0 : 1);
  }
  pollfd polled{listener.get(), POLLIN, 0};
  REQUIRE(::poll(&polled, 1, 60'000) == 1);
  CHECK_FALSE(sched::accept_own_user(listener.get()));
  int status = -1;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
}

TEST_CASE("the error for a socket path that is too long names the path") {
  CHECK_THROWS_WITH_AS(
      sched::listen_at("/tmp/" + std::string(120, 'x')),
      ("cannot listen on socket '/tmp/" + std::string(120, 'x') + "': the path is too long for a socket").c_str(),
      Error);
}

}  // namespace runtime_directory_test
