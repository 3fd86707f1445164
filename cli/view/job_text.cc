#include "view/job_text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "adaptdl/error.h"
#include "adaptdl/sched_hints.h"
#include "base/printable.h"
#include "kube/api/json_fields.h"
#include "policy/base/job_hints.h"
#include "policy/base/speedup.h"
#include "terminal/dump_json.h"
#include "terminal/format.h"
#include "terminal/table.h"
#include "terminal/terminal.h"
#include "view/status_line.h"

namespace adaptdl::cli {
namespace {

using kube::field;
using kube::text_field;
using nlohmann::json;

std::string line(const std::string& name, const std::string& value) {
  return value.empty() ? "" : fmt::format("{:<14}{}\n", name + ':', printable(value));
}

std::string at(kube::Time time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::chrono::system_clock::to_time_t(time)));
}

std::string ago(std::optional<kube::Time> time, kube::Time now) {
  if (!time) return "";
  return fmt::format("{} ({} ago)", at(*time),
                     format_duration(std::chrono::duration_cast<std::chrono::milliseconds>(now - *time)));
}

std::string span_between(std::optional<kube::Time> begin, kube::Time end) {
  return begin ? format_clock(std::chrono::duration_cast<std::chrono::milliseconds>(end - *begin)) : "";
}

std::string section(const std::string& title, const Table& table) {
  if (table.empty()) return "";
  std::string out = '\n' + title + ":\n", text = table.render();
  while (!text.empty()) {
    const std::size_t end = text.find('\n') + 1;
    out += "  " + text.substr(0, end);
    text.erase(0, end);
  }
  return out;
}

std::string bounds_text(const kube::Job& job) {
  std::string text;
  if (job.min_replicas) text += fmt::format("at least {}", *job.min_replicas);
  if (job.max_replicas) text += fmt::format("{}at most {}", text.empty() ? "" : ", ", *job.max_replicas);
  if (!job.preemptible) text += text.empty() ? "not preemptible" : ", not preemptible";
  return text;
}

// Returns the nodes and the number of replicas on each: "node-a x2, node-b".
std::string allocation_text(const kube::JobView& view) {
  std::vector<std::string> nodes = view.job.allocation;
  if (nodes.empty()) {
    for (const kube::Replica& replica : view.replicas) {
      if (!replica.node.empty()) nodes.push_back(replica.node);
    }
  }
  std::vector<std::string> parts;
  for (const std::string& node : std::set<std::string>(nodes.begin(), nodes.end())) {
    const auto count = std::ranges::count(nodes, node);
    parts.push_back(count == 1 ? node : fmt::format("{} x{}", node, count));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Lists the containers' mounts and their volumes, which show where output is stored.
std::string mounts_text(const json& object) {
  Table table({{"MOUNT"}, {"SOURCE"}});
  const json& spec = field(object, {"spec", "template", "spec"});
  const auto source = [&](const std::string& name) -> std::string {
    for (const json& volume : kube::array_field(spec, {"volumes"})) {
      if (text_field(volume, {"name"}) != name) continue;
      if (const std::string claim = text_field(volume, {"persistentVolumeClaim", "claimName"}); !claim.empty())
        return "volume claim " + claim;
      for (const auto& [kind, settings] : volume.items()) {
        if (kind != "name") return kind == "emptyDir" ? "deleted with the pod" : kind;
      }
    }
    return "volume " + name;
  };
  for (const json& container : kube::array_field(spec, {"containers"})) {
    for (const json& mount : kube::array_field(container, {"volumeMounts"})) {
      const std::string part = text_field(mount, {"subPath"});
      table.add_row(
          {text_field(mount, {"mountPath"}), source(text_field(mount, {"name"})) + (part.empty() ? "" : ", " + part)});
    }
  }
  return section("Mounts", table);
}

std::string pods_text(const kube::JobView& view, kube::Time now) {
  Table table({{"RANK", Table::Align::kRight},
               {"POD"},
               {"NODE"},
               {"STATE"},
               {"RESTARTS", Table::Align::kRight},
               {"AGE"},
               {"WHY"}});
  for (const kube::Replica& replica : view.replicas) {
    const std::string state = replica.leaving ? "leaving" : replica.ready ? "ready" : replica.phase;
    table.add_row({replica.rank < 0 ? "-" : fmt::to_string(replica.rank), replica.name,
                   replica.node.empty() ? "-" : replica.node, state, fmt::to_string(replica.restarts),
                   replica.created
                       ? format_duration(std::chrono::duration_cast<std::chrono::milliseconds>(now - *replica.created))
                       : "-",
                   replica.trouble});
  }
  return section("Replicas", table);
}

// Lists the conditions that the scheduler wrote to the job's status.
std::string conditions_text(const json& object, kube::Time now) {
  Table table({{"CONDITION"}, {"STATUS"}, {"SINCE"}, {"REASON"}, {"MESSAGE"}});
  for (const json& condition : kube::array_field(object, {"status", "conditions"})) {
    table.add_row({text_field(condition, {"type"}), text_field(condition, {"status"}),
                   ago(kube::time_field(condition, {"lastTransitionTime"}), now), text_field(condition, {"reason"}),
                   text_field(condition, {"message"})});
  }
  return section("Conditions", table);
}

std::string events_text(std::vector<kube::Event> events) {
  std::ranges::stable_sort(events, {}, [](const kube::Event& event) { return event.last.value_or(kube::Time::min()); });
  Table table({{"TIME"}, {"OBJECT"}, {"EVENT"}, {"COUNT", Table::Align::kRight}, {"MESSAGE"}});
  for (const kube::Event& event : events) {
    std::string message = event.message;
    std::ranges::replace(message, '\n', ' ');
    table.add_row({event.last ? at(*event.last) : "-", event.kind == "Pod" ? event.name : "job", event.reason,
                   fmt::to_string(event.count), message});
  }
  return section("Events", table);
}

std::string hints_text(const json& train) {
  Table table({{"HINT"}, {"VALUE"}});
  if (train.is_object()) {
    for (const auto& [name, value] : train.items()) {
      if (!value.is_null()) table.add_row({name, dump_json(value, -1)});
    }
  }
  return section("Hints", table);
}

// Returns "" if no usage is recorded for the job.
std::string usage_text(const kube::JobUsage& usage, kube::Time now) {
  std::string text;
  if (const double hours = usage.gpu_hours(now); hours > 0) text = fmt::format("{:.2f} GPU-hours", hours);
  if (const auto cost = usage.total_cost(now)) {
    text += fmt::format("{}cost {:.2f}", text.empty() ? "" : ", ", *cost);
    if (usage.cost_per_hour) text += fmt::format(", now {:.2f} per hour", *usage.cost_per_hour);
  }
  return text;
}

std::string images_text(const json& object) {
  std::vector<std::string> images;
  for (const json& container : kube::array_field(object, {"spec", "template", "spec", "containers"}))
    images.push_back(text_field(container, {"image"}));
  return fmt::format("{}", fmt::join(images, ", "));
}

std::string command_text(const json& object) {
  std::vector<std::string> words;
  for (const json& container : kube::array_field(object, {"spec", "template", "spec", "containers"})) {
    for (const char* part : {"command", "args"}) {
      for (const json& word : kube::array_field(container, {part})) {
        if (word.is_string()) words.push_back(word.get<std::string>());
      }
    }
    break;
  }
  std::string text = fmt::format("{}", fmt::join(words, " "));
  return truncated(text, 200);
}

}  // namespace

std::optional<PredictedSpeed> predicted_speed(const kube::JobView& view) {
  const kube::Job& job = view.job;
  const int replicas = job.allocation.empty() ? view.wanted : static_cast<int>(job.allocation.size());
  const std::set<std::string> all(job.allocation.begin(), job.allocation.end());
  const int nodes = std::max(1, static_cast<int>(all.size()));
  if (!job.train.is_object() || replicas < 1) return std::nullopt;
  try {
    check_sched_hints(job.train);
    sched::JobInfo info;
    sched::apply_hints(job.train, info);
    if (!info.speedup) return std::nullopt;
    const auto best = info.speedup->goodput_function().optimize(nodes, replicas, info.speedup->limits());
    return PredictedSpeed{.goodput = info.speedup->goodput(nodes, replicas),
                          .speedup = (*info.speedup)(nodes, replicas),
                          .batch = static_cast<double>(best.atomic_bsz) * (best.accum_steps + 1) * replicas};
  } catch (const Error&) {
    return std::nullopt;  // nothing can be derived from contradictory hints
  }
}

std::string run_text(const sched::RunStatus& run, kube::Time now) {
  std::string text = line("Name", run.name) + line("Where", "local, on " + run.host) + line("Status", run.state) +
                     line("Why", run.why) + line("Started", ago(run.started, now));
  if (run.ended) text += line("Ended", ago(run.ended, now));
  text += line("Runtime", span_between(run.started, run.ended.value_or(now)));
  const std::string bounds =
      run.min == run.max ? std::string() : fmt::format(" (minimum {}, maximum {})", run.min, run.max);
  text += line("Replicas", sched::has_ended(run) ? fmt::format("{} wanted{}", run.wanted, bounds)
                                                 : fmt::format("{} of {}{}", run.replicas, run.wanted, bounds));
  text += line("Devices", fmt::format("{}", fmt::join(run.devices, ", ")));
  text += line("Restarts", fmt::to_string(run.restarts));
  if (run.device_seconds > 0) text += line("Usage", format_hours(run.device_seconds) + " device-hours");
  if (run.exit_code) text += line("Exit code", fmt::to_string(*run.exit_code));
  if (!sched::has_ended(run)) text += line("Launcher", fmt::format("process {}", run.pid));
  text += line("Command", fmt::format("{}", fmt::join(run.command, " ")));
  text += line("Checkpoints", run.checkpoints.empty() ? "none are saved" : run.checkpoints);
  text += line("Logs", run.logs);
  text += line("To continue", run.resume);
  Table progress({{"PROGRESS"}, {"VALUE"}});
  if (run.progress.is_object()) {
    for (const auto& [name, value] : run.progress.items()) progress.add_row({name, dump_json(value, -1)});
  }
  return text + section("Reported", progress);
}

std::string job_text(const json& object, const kube::JobView& view, std::vector<kube::Event> events,
                     const std::string& context, kube::Time now) {
  const kube::Job& job = view.job;
  std::string text = line("Name", job.name) + line("Namespace", job.name_space) + line("Where", context) +
                     line("Status", job.deleted         ? "Deleting"
                                    : job.phase.empty() ? "Pending"
                                                        : job.phase) +
                     line("Why", view.why) + line("Created", ago(job.created, now));
  if (job.completed) text += line("Ended", ago(job.completed, now));
  if (job.group || job.completed || !view.replicas.empty())
    text += line("Runtime", span_between(job.created, job.completed.value_or(now)));
  const std::string bounds = bounds_text(job);
  text +=
      line("Replicas", fmt::format("{} of {} ready{}", view.ready, view.wanted, bounds.empty() ? "" : "; " + bounds));
  text += line("Nodes", allocation_text(view));
  text += line("Restarts", fmt::to_string(job.group.value_or(0)));
  text += line("Usage", usage_text(job.usage, now));
  text += line("Image", images_text(object));
  text += line("Command", command_text(object));
  if (const auto speed = predicted_speed(view))
    text +=
        line("Goodput", fmt::format("{} useful samples/s, {:.3g} times a single replica's goodput, with batches of {}",
                                    rate_text(speed->goodput), speed->speedup, count_text(speed->batch)));
  return text + mounts_text(object) + pods_text(view, now) + hints_text(job.train) + conditions_text(object, now) +
         events_text(std::move(events));
}

}  // namespace adaptdl::cli
