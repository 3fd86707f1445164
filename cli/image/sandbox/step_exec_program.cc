// The program between process 1 of a sandbox and a step's command: step_exec COMMAND ARGUMENT...
//
// Finds a command in $PATH and executes it. On failure, writes the reason to descriptor 3, which exec closes.
//
// Without this program, /proc/self/exe would be the builder when the command is executed. An image could then run the
// builder with the image's own libraries, as its command or a script's interpreter, and overwrite the builder's file
// (CVE-2019-5736).
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kTroubleFd = 3;

[[noreturn]] void fail(const char* program, int error) {
  const bool there = ::access(program, F_OK) == 0;
  const char* why = std::strerror(error);
  if (error == ENOENT && there)
    why = "its interpreter is not in the image";
  else if (error == ENOENT)
    why = "not found in the image";
  else if (error == ENOEXEC)
    why = "not a program for this machine; to run programs for other platforms, install qemu-user and binfmt_misc";
  ::dprintf(kTroubleFd, "cannot run '%s': %s", program, why);
  ::_exit(127);
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 127;
  char** const command = words + 1;
  const char* const name = command[0];
  ::fcntl(kTroubleFd, F_SETFD, FD_CLOEXEC);
  if (std::strchr(name, '/') != nullptr) {
    ::execv(name, command);
    fail(name, errno);
  }
  const char* path = std::getenv("PATH");
  if (path == nullptr) path = "";
  int error = ENOENT;
  for (const char* end = path; end != nullptr; path = end + 1) {
    end = std::strchr(path, ':');
    const std::size_t size = end == nullptr ? std::strlen(path) : static_cast<std::size_t>(end - path);
    char* program = nullptr;
    if (::asprintf(&program, "%.*s/%s", size == 0 ? 1 : static_cast<int>(size), size == 0 ? "." : path, name) < 0)
      fail(name, ENOMEM);
    ::execv(program, command);
    if (errno != ENOENT && errno != ENOTDIR) error = errno;
    std::free(program);
    if (error == ENOEXEC || end == nullptr) break;
  }
  fail(name, error);
}
