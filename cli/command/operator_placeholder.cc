#include "command/operator_placeholder.h"

#include <signal.h>

namespace adaptdl::cli {
namespace {

// Waits until the pod is deleted. As the first process of a container, this one would not get a signal that it does not
// handle.
void wait_for_end() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  int signal = 0;
  ::sigwait(&signals, &signal);
}

}  // namespace

void add_operator_placeholder(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("placeholder", "Wait until stopped, as the program of placeholder pods");
  verb->callback(wait_for_end);
}

}  // namespace adaptdl::cli
