#include "image/layer/id_map.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <tuple>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/text_parts.h"
#include "image/base/small_file.h"

namespace adaptdl::image {
namespace {

std::string user_name() {
  const passwd* const user = ::getpwuid(::getuid());
  return user != nullptr ? user->pw_name : std::to_string(::getuid());
}

// The kernel accepts a map only in a single write. Returns errno, or 0.
int write_map(const std::string& file, const std::string& text) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = ::write(fd, text.data(), text.size()) < 0 ? errno : 0;
  ::close(fd);
  return error;
}

std::string map_text(const std::vector<IdRange>& ranges) {
  std::string text;
  for (const IdRange& range : ranges) text += fmt::format("{} {} {}\n", range.inside, range.outside, range.count);
  return text;
}

// Runs newuidmap or newgidmap, which may map the IDs in /etc/subuid and /etc/subgid. Returns why the program failed, or
// "" if it succeeded.
std::string run_mapper(const std::string& program, pid_t process, const std::vector<IdRange>& ranges) {
  std::vector<std::string> words{program, std::to_string(process)};
  for (const IdRange& range : ranges)
    for (const unsigned long number : {range.inside, range.outside, range.count})
      words.push_back(std::to_string(number));
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int output[2];
  if (::pipe2(output, O_CLOEXEC) != 0) return fmt::format("cannot create a pipe: {}", std::strerror(errno));
  const pid_t child = ::fork();
  const int fork_error = errno;
  if (child == 0) {
    ::dup2(output[1], 1);
    ::dup2(output[1], 2);
    ::execvp(arguments[0], arguments.data());
    ::_exit(errno == ENOENT ? 127 : 126);
  }
  ::close(output[1]);
  std::string answer;
  char buffer[512];
  for (ssize_t count; (count = ::read(output[0], buffer, sizeof buffer)) > 0;)
    if (answer.size() < 2000) answer.append(buffer, static_cast<std::size_t>(count));
  ::close(output[0]);
  int status = 0;
  if (child < 0) return fmt::format("cannot start {}: {}", program, std::strerror(fork_error));
  if (::waitpid(child, &status, 0) != child)
    return fmt::format("cannot wait for {}: {}", program, std::strerror(errno));
  if (status == 0) return "";
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    return fmt::format("{} is not installed (package uidmap on Debian, shadow-utils elsewhere)", program);
  return fmt::format("{} failed{}{}", program, answer.empty() ? "" : ": ", one_line(answer, 200));
}

std::string map_from_outside(pid_t process) {
  // Root in a container may be allowed to map any ID; in this case, all of this process's IDs are mapped.
  if (map_own_ids(process)) return "";
  const std::string user = user_name();
  const std::vector<IdRange> users = subordinate_ids(text_of_file("/etc/subuid"), user, ::getuid(), ::getuid()),
                             groups = subordinate_ids(text_of_file("/etc/subgid"), user, ::getuid(), ::getgid());
  for (const auto& [ranges, file, option] :
       {std::tuple{&users, "/etc/subuid", "--add-subuids"}, {&groups, "/etc/subgid", "--add-subgids"}})
    if (ranges->size() < 2)
      return fmt::format("{} lists no IDs for {}; have an administrator run: usermod {} 100000-165535 {}", file, user,
                         option, user);
  // Groups come first: if only the users were mapped, there would be no fallback.
  if (std::string why = run_mapper("newgidmap", process, groups); !why.empty()) return why;
  return run_mapper("newuidmap", process, users);
}

}  // namespace

bool map_own_ids(pid_t process) {
  if (::geteuid() != 0) return false;
  for (const char* kind : {"gid_map", "uid_map"}) {
    std::vector<IdRange> ranges;
    std::istringstream own(text_of_file(fmt::format("/proc/self/{}", kind)));
    for (IdRange range; own >> range.inside >> range.outside >> range.count; ranges.push_back(range))
      range.outside = range.inside;
    if (ranges.empty() || write_map(fmt::format("/proc/{}/{}", process, kind), map_text(ranges)) != 0) return false;
  }
  return true;
}

std::vector<IdRange> subordinate_ids(std::string_view file, const std::string& user, uid_t number, unsigned long own) {
  const auto read = [](const std::string& text, unsigned long& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  };
  std::vector<IdRange> ranges{{0, own, 1}};
  unsigned long inside = 1;
  for (const std::string& line : split(file, '\n')) {
    const std::vector<std::string> fields = split(line, ':');
    if (fields.size() != 3 || (fields[0] != user && fields[0] != std::to_string(number))) continue;
    IdRange range{inside, 0, 0};
    if (!read(fields[1], range.outside) || !read(fields[2], range.count) || range.count == 0) continue;
    ranges.push_back(range);
    inside += range.count;
  }
  return ranges;
}

IdMapper::IdMapper() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(fmt::format("cannot create a socket: {}", std::strerror(errno)));
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) {
    const int error = errno;
    ::close(ends[0]);
    ::close(ends[1]);
    throw Error(fmt::format("cannot start a process: {}", std::strerror(error)));
  }
  if (pid_ == 0) {
    ::close(ends[0]);
    char go = 0;
    if (::read(ends[1], &go, 1) == 1) {
      const std::string why = map_from_outside(parent);
      if (!why.empty() && ::write(ends[1], why.data(), why.size()) < 0) ::_exit(1);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  channel_ = ends[0];
}

IdMapper::~IdMapper() {
  ::close(channel_);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::string IdMapper::map() {
  const char go = 1;
  std::string why;
  if (::write(channel_, &go, 1) != 1) return "the process that maps IDs has exited";
  char buffer[512];
  for (ssize_t count; (count = ::read(channel_, buffer, sizeof buffer)) > 0;)
    why.append(buffer, static_cast<std::size_t>(count));
  return why;
}

}  // namespace adaptdl::image
