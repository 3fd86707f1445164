#include "local/replica/guardian.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "adaptdl/error.h"
#include "local/base/process_tree.h"

namespace adaptdl::sched {
namespace {

// A message is the id of a session to watch, or the negated id of a session to forget. It is shorter than PIPE_BUF, so
// it is written atomically.
using Message = pid_t;

constexpr char kName[] = "replica-guard";

// Overwrites the command line that this process inherited, whose address is in /proc/self/stat.
void rename_process() {
  ::prctl(PR_SET_NAME, kName);
  const Fd file(::open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
  char text[2048];
  const ssize_t size = file ? ::read(file.get(), text, sizeof text - 1) : -1;
  if (size <= 0) return;
  text[size] = '\0';
  const char* field = std::strrchr(text, ')');
  constexpr int kArgStart = 48;  // the fields are numbered from 1; the name is the second
  for (int i = 2; i < kArgStart && field != nullptr; ++i) field = std::strchr(field + 1, ' ');
  unsigned long start = 0, end = 0;
  if (field == nullptr || std::sscanf(field, " %lu %lu", &start, &end) != 2 || start == 0 || end <= start) return;
  char* const arguments = reinterpret_cast<char*>(start);
  std::memset(arguments, 0, end - start);
  std::memcpy(arguments, kName, std::min<std::size_t>(sizeof kName - 1, end - start - 1));
}

[[noreturn]] void guard(int pipe) {
  ::setsid();
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2})
    ::signal(signal_number, SIG_IGN);
  rename_process();
  close_from(0, pipe);
  if (::chdir("/") != 0) ::_exit(1);  // must not keep a file system busy

  std::set<pid_t> sessions;
  for (;;) {
    Message message = 0;
    const ssize_t size = ::read(pipe, &message, sizeof message);
    if (size < 0 && errno == EINTR) continue;
    if (size != sizeof message) break;
    if (message > 0) {
      sessions.insert(message);
    } else {
      sessions.erase(-message);
    }
  }
  constexpr int kRounds = 100;
  constexpr useconds_t kPause = 20'000;
  for (int round = 0; round < kRounds && !sessions.empty() && !kill_sessions(sessions).empty(); ++round)
    ::usleep(kPause);
  ::_exit(0);
}

}  // namespace

Guardian::Guardian() {
  Pipe pipe = make_pipe();
  pid_ = ::fork();
  if (pid_ < 0) throw Error(fmt::format("cannot start the guardian process: {}", std::strerror(errno)));
  if (pid_ == 0) guard(pipe.read.get());
  pipe_ = std::move(pipe.write);
}

Guardian::~Guardian() {
  pipe_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::watch(pid_t session) noexcept {
  const Message message = session;
  [[maybe_unused]] const ssize_t written = ::write(pipe_.get(), &message, sizeof message);
}

void Guardian::forget(pid_t session) noexcept { watch(-session); }

}  // namespace adaptdl::sched
