// sandbox_probe NAME: attempts one operation, and prints "done" or the name of the error.
#include <linux/keyctl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace {

long attempt(const char* name) {
  const auto is = [&](const char* other) { return std::strcmp(name, other) == 0; };
  if (is("packet-socket")) return ::socket(AF_PACKET, SOCK_RAW, 0);
  if (is("raw-socket")) return ::socket(AF_INET, SOCK_RAW, 255);
  if (is("tcp-socket")) return ::socket(AF_INET, SOCK_STREAM, 0);
  if (is("low-port")) {
    const sockaddr_in address{AF_INET, htons(1023), {htonl(INADDR_LOOPBACK)}, {}};
    return ::bind(::socket(AF_INET, SOCK_STREAM, 0), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  if (is("user-namespace")) return ::unshare(CLONE_NEWUSER);
  if (is("mount-namespace")) return ::unshare(CLONE_NEWNS);
  if (is("mount-proc")) return ::mount("proc", "/proc", "proc", 0, nullptr);
  if (is("key")) {
    const long key = ::syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, "user", "adaptdl-test", 0);
    char text[64];
    return key < 0 ? key : ::syscall(SYS_keyctl, KEYCTL_READ, key, text, sizeof text);
  }
  errno = EINVAL;
  return -1;
}

}  // namespace

int main(int count, char** words) {
  std::puts(attempt(count > 1 ? words[1] : "") >= 0 ? "done" : strerrorname_np(errno));
}
