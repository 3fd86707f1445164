#include "command/run/checkpoint_save.h"

#include <memory>
#include <string>

#include "local/record/run_client.h"
#include "local/record/run_directory.h"
#include "terminal/print.h"

namespace adaptdl::cli {

void add_checkpoint_save(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  CLI::App* verb =
      app.add_subcommand("save", "Make a run save a checkpoint at its next step, and print the checkpoint's path");
  verb->add_option("run", *name, "Name of a local run; a unique prefix is enough")->required()->type_name("RUN");
  verb->footer("Training continues. The command waits until the checkpoint is committed.");
  verb->callback([name] {
    const sched::RunEntry run = sched::find_run(sched::runs_directory(), *name);
    const auto answer = sched::ask_run(run, {{"request", "checkpoint"}});
    print_out("{}\n", answer.at("path").get<std::string>());
  });
}

}  // namespace adaptdl::cli
