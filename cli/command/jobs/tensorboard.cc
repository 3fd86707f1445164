#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "command/base/cluster_options.h"
#include "command/base/command.h"
#include "command/base/numbers.h"
#include "command/base/stop_signals.h"
#include "kube/jobs/tensorboard.h"
#include "kube/stream/port_forward.h"
#include "terminal/dump_json.h"
#include "terminal/print.h"
#include "terminal/table.h"
#include "terminal/terminal.h"

namespace adaptdl::cli {
namespace {

using nlohmann::json;

struct TensorBoardCommandOptions {
  ClusterOptions cluster;
  kube::TensorBoardOptions board;
  std::string output, port = "0", address = "127.0.0.1";
  bool yes = false;
};

void create(const TensorBoardCommandOptions& options) {
  kube::tensorboard_objects(options.board);  // throws before any request if the options are invalid
  kube::Client client(require_cluster(options.cluster));
  kube::create_tensorboard(client, client.access().name_space, options.board);
  print_out("Successfully created TensorBoard instance {}\n", options.board.name);
}

void list(const TensorBoardCommandOptions& options) {
  if (!options.output.empty() && options.output != "json")
    throw UsageError(fmt::format("tensorboard list: -o must be json, not '{}'", options.output));
  kube::Client client(require_cluster(options.cluster));
  const auto boards = kube::list_tensorboards(client, client.access().name_space);
  if (options.output == "json") {
    json all = json::array();
    for (const auto& board : boards) {
      all.push_back({{"name", board.name},
                     {"nodePort", board.node_port ? json(*board.node_port) : json()},
                     {"size", board.size ? json(*board.size) : json()},
                     {"ready", board.ready},
                     {"wanted", board.wanted},
                     {"why", board.why}});
    }
    print_text(dump_json(all) + '\n');
    return;
  }
  Table table({{"NAME"}, {"NODEPORT"}, {"SIZE"}, {"READY"}, {"WHY"}});
  for (const auto& board : boards) {
    table.add_row({board.name, board.node_port ? std::to_string(*board.node_port) : "<none>",
                   board.size.value_or("<none>"), fmt::format("{}/{}", board.ready, board.wanted), board.why});
  }
  table.print();
}

std::string url_host(const std::string& address) {
  if (address == "127.0.0.1") return "localhost";
  return address.find(':') == std::string::npos ? address : '[' + address + ']';
}

void proxy(const TensorBoardCommandOptions& options) {
  const std::string service = kube::tensorboard_object_name(options.board.name);
  kube::ForwardOptions forward{
      .service = service,
      .port = std::to_string(kube::kTensorBoardPort),
      .address = options.address,
      .local_port = parse_number<std::uint16_t>(options.port, "tensorboard proxy: -p", 0, 65535, "a port")};
  StopSignals signals([] {});
  kube::Client client(require_cluster(options.cluster));
  forward.name_space = client.access().name_space;
  const auto notice = [](const std::string& line) { print_notice("{}", line); };
  kube::PortForward served(client, forward);  // before the wait, to report a port in use
  kube::wait_until_ready(client, forward.name_space, options.board.name, signals.token(), notice);
  if (signals.token().stop_requested()) return;
  served.find();
  print_out("Serving TensorBoard instance {} at http://{}:{}\n", options.board.name, url_host(options.address),
            served.local_port());
  std::fflush(stdout);
  served.serve(signals.token(), notice);
}

void remove_tensorboard(const TensorBoardCommandOptions& options) {
  kube::tensorboard_object_name(options.board.name);
  kube::Client client(require_cluster(options.cluster));
  const std::string& name_space = client.access().name_space;
  if (!options.yes && is_terminal(STDIN_FILENO)) {
    kube::get_tensorboard(client, name_space, options.board.name);
    print_prompt("Delete TensorBoard instance '{}' in namespace '{}' and all its data? [y/N] ", options.board.name,
                 name_space);
    std::string answer;
    std::getline(std::cin, answer);
    if (answer != "y" && answer != "Y" && answer != "yes") throw Error("nothing was deleted");
  }
  kube::delete_tensorboard(client, name_space, options.board.name);
  print_out("Successfully deleted TensorBoard instance {}\n", options.board.name);
}

CLI::App* add_tensorboard_verb(CLI::App& app, const char* name, const char* summary, TensorBoardCommandOptions& options,
                               bool named = true) {
  CLI::App* verb = app.add_subcommand(name, summary);
  if (named) verb->add_option("name", options.board.name, "Name of the TensorBoard")->required()->type_name("NAME");
  add_context_options(*verb, options.cluster);
  return verb;
}

}  // namespace

void add_tensorboard(CLI::App& app, int&) {
  auto options = std::make_shared<TensorBoardCommandOptions>();
  CLI::App* verb = add_tensorboard_verb(app, "create", "Create a TensorBoard that jobs can write to", *options);
  verb->add_option("--storageclass", options->board.storage_class,
                   "Storage class of the TensorBoard's volume; must support volumes shared by several nodes (default: "
                   "the cluster's default class or, if there is none, one that is known to support them)")
      ->type_name("NAME");
  verb->add_option("--size", options->board.size, "Size of the TensorBoard's volume (default: 1Gi)")
      ->type_name("QUANTITY");
  verb->add_option("--image", options->board.image,
                   "Image that contains the program `tensorboard` (default: tensorflow/tensorflow)")
      ->type_name("IMAGE");
  verb->add_flag("--nodeport", options->board.node_port, "Also serve the TensorBoard on a port of every node");
  verb->callback([options] { create(*options); });

  verb = add_tensorboard_verb(app, "list", "List TensorBoards, with the reason for each one that is not ready",
                              *options, false);
  verb->add_option("-o,--output", options->output, "Output format")->type_name("json");
  verb->callback([options] { list(*options); });

  verb = add_tensorboard_verb(app, "proxy", "Serve a TensorBoard on this machine until Ctrl-C", *options);
  verb->add_option("-p,--port", options->port, "Port to serve on (default: a free port)")->type_name("PORT");
  verb->add_option("--address", options->address, "Address to serve on (default: 127.0.0.1)")->type_name("ADDRESS");
  verb->callback([options] { proxy(*options); });

  verb = add_tensorboard_verb(app, "delete", "Delete a TensorBoard and all its data", *options);
  verb->add_flag("--yes", options->yes, "Do not ask for confirmation");
  verb->callback([options] { remove_tensorboard(*options); });
}

}  // namespace adaptdl::cli
