// The `adaptdl` command. It turns every exception into one line on standard error and an exit code.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "adaptdl/error.h"
#include "command/dispatch.h"
#include "local/devices/agent.h"
#include "local/replica/replica_server.h"
#include "terminal/print.h"

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

int complain(const char* what, int exit_code) {
  adaptdl::cli::print_error(what);
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::string_view(argv[0]) == adaptdl::sched::kAgentName) return adaptdl::sched::run_agent(argv[1]);
    if (argc == 1 && std::string_view(argv[0]) == adaptdl::sched::kReplicaServerName)
      return adaptdl::sched::serve_replicas(adaptdl::Fd(0), adaptdl::Fd(1));
    const int exit_code = adaptdl::cli::dispatch({argv + 1, argv + argc});
    // Only the flush detects that output could not be written, for example to a full disk.
    if (std::fflush(stdout) != 0)
      return complain(fmt::format("cannot write to standard output: {}", std::strerror(errno)).c_str(), kFailed);
    return exit_code;
  } catch (const adaptdl::UsageError& error) {
    return complain(error.what(), kUsage);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kFailed);
  } catch (const std::exception& error) {
    return complain(error.what(), kFailed);
  }
}
