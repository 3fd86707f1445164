#include "command/submit/submit_output.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>

#include "kube/api/json_fields.h"
#include "kube/jobs/job.h"
#include "terminal/dump_json.h"
#include "terminal/print.h"
#include "terminal/terminal.h"
#include "terminal/yaml.h"

namespace adaptdl::cli {
namespace {

using nlohmann::json;

std::string called(const json& job, const kube::Client& client) {
  const std::string place = kube::text_field(job, {"metadata", "namespace"});
  const std::string name = kube::text_field(job, {"metadata", "name"});
  return place == client.access().name_space ? name : place + '/' + name;
}

}  // namespace

void print_objects(const std::vector<kube::Submission>& all, const std::string& form) {
  json items = json::array();
  for (const kube::Submission& one : all) {
    items.push_back(one.claim);
    items.push_back(one.job);
  }
  if (form == "json") {
    const json list{{"apiVersion", "v1"}, {"kind", "List"}, {"items", items}};
    print_text(dump_json(list) + '\n');
    return;
  }
  for (std::size_t i = 0; i < items.size(); ++i) print_text((i == 0 ? "" : "---\n") + to_yaml(items[i]));
}

void print_created(const json& job, const kube::Client& client, const SubmitOptions& options) {
  const std::string name = called(job, client);
  if (options.json) {
    json volume;
    for (const json& one : kube::array_field(job, {"spec", "template", "spec", "volumes"})) {
      if (kube::text_field(one, {"name"}) == kube::kJobVolume)
        volume = kube::field(one, {"persistentVolumeClaim", "claimName"});
    }
    const json created{{"name", job["metadata"]["name"]},
                       {"namespace", job["metadata"]["namespace"]},
                       {"uid", job["metadata"]["uid"]},
                       {"context", client.access().context},
                       {"claim", volume},
                       {"image", kube::array_field(job, {"spec", "template", "spec", "containers"})[0]["image"]}};
    print_text(dump_json(created, -1) + '\n');
  } else if (!is_terminal(STDOUT_FILENO)) {
    print_out("{}\n", name);
  } else {
    std::string where;
    if (!options.cluster.name_space.empty()) where += " -n " + options.cluster.name_space;
    if (!options.cluster.context.empty()) where += " --context " + options.cluster.context;
    print_out("Submitted job {} to namespace {} in context {}\n", name,
              kube::text_field(job, {"metadata", "namespace"}), client.access().context);
    if (!options.follow && !options.wait) {
      const std::pair<std::string, const char*> next[] = {
          {"ls" + where, "shows the states of jobs, and why they are waiting or failed"},
          {fmt::format("logs {} --follow{}", name, where), "shows the output of the job's replicas"},
          {fmt::format("cp {}:/adaptdl/share/FILE .{}", name, where), "copies a file that the job has written"},
          {fmt::format("delete {}{}", name, where), "deletes the job"}};
      std::size_t width = 0;
      for (const auto& [command, effect] : next) width = std::max(width, command.size());
      for (const auto& [command, effect] : next) print_out("  adaptdl {:<{}}  {}\n", command, width, effect);
    }
  }
  std::fflush(stdout);
}

}  // namespace adaptdl::cli
