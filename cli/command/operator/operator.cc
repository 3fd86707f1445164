#include "command/base/command.h"
#include "command/operator/operator_manifests.h"
#include "command/operator/operator_placeholder.h"
#include "command/operator/operator_run.h"

namespace adaptdl::cli {

void add_operator(CLI::App& app, int&) {
  add_operator_run(app);
  add_operator_manifests(app);
  add_operator_placeholder(app);
}

}  // namespace adaptdl::cli
