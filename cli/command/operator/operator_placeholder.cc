#include "command/operator/operator_placeholder.h"

#include <signal.h>

namespace adaptdl::cli {
namespace {

// Waits until the pod is deleted. Signals must be handled, because the first process in a container does not
// receive signals that it does not handle.
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
  CLI::App* verb = app.add_subcommand("placeholder", "Wait until terminated; placeholder pods run this verb");
  verb->callback(wait_for_end);
}

}  // namespace adaptdl::cli
