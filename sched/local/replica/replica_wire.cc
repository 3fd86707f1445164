#include "local/replica/replica_wire.h"

#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "base/base64.h"
#include "base/utf8.h"

namespace adaptdl::sched {

using nlohmann::json;

namespace {

// Makes a path in the working directory relative, since that directory may have a different name on each node.
std::string path_on_nodes(const std::filesystem::path& path) {
  const auto relative = path.lexically_relative(std::filesystem::current_path());
  return relative.empty() || *relative.begin() == ".." ? path.string() : "./" + relative.string();
}

}  // namespace

json node_plan_to_json(const LaunchPlan& plan) {
  json result = {{"program", path_on_nodes(plan.program)},
                 {"arguments", plan.arguments},
                 {"job_id", plan.job_id},
                 {"replicas", plan.replicas},
                 {"cpu", plan.device_kind == DeviceKind::kCpu},
                 {"settings", plan.settings},
                 {"grace", plan.grace.count()}};
  if (plan.checkpoints) result["checkpoints"] = plan.checkpoints->string();
  if (plan.copies_checkpoints) result["copies_checkpoints"] = true;
  if (plan.share) result["share"] = plan.share->string();
  if (plan.hang_timeout) result["hang_timeout"] = plan.hang_timeout->count();
  return result;
}

LaunchPlan node_plan_from_json(const json& plan) {
  using std::chrono::milliseconds;
  LaunchPlan result;
  result.program = plan.at("program").get<std::string>();
  plan.at("arguments").get_to(result.arguments);
  plan.at("job_id").get_to(result.job_id);
  plan.at("replicas").get_to(result.replicas);
  result.device_kind = plan.at("cpu").get<bool>() ? DeviceKind::kCpu : DeviceKind::kGpu;
  plan.at("settings").get_to(result.settings);
  result.grace = milliseconds(plan.at("grace").get<milliseconds::rep>());
  if (plan.contains("checkpoints")) result.checkpoints = plan["checkpoints"].get<std::string>();
  result.copies_checkpoints = plan.contains("copies_checkpoints");
  if (plan.contains("share")) result.share = plan["share"].get<std::string>();
  if (plan.contains("hang_timeout")) result.hang_timeout = milliseconds(plan["hang_timeout"].get<milliseconds::rep>());
  return result;
}

json place_to_json(const ReplicaPlace& place) {
  return {{"rank", place.rank},
          {"size", place.size},
          {"restarts", place.restarts},
          {"master_host", place.master_host},
          {"master_port", place.master_port},
          {"device", place.device},
          {"id", place.id},
          {"generation", place.generation},
          {"supervisor_url", place.supervisor_url},
          {"supervisor_token", place.supervisor_token}};
}

ReplicaPlace place_from_json(const json& place) {
  ReplicaPlace result;
  place.at("rank").get_to(result.rank);
  place.at("size").get_to(result.size);
  place.at("restarts").get_to(result.restarts);
  place.at("master_host").get_to(result.master_host);
  place.at("master_port").get_to(result.master_port);
  place.at("device").get_to(result.device);
  place.at("id").get_to(result.id);
  place.at("generation").get_to(result.generation);
  place.at("supervisor_url").get_to(result.supervisor_url);
  place.at("supervisor_token").get_to(result.supervisor_token);
  return result;
}

json end_to_json(const ReplicaEnd& end) {
  return {{"signalled", end.status.signalled},  {"code", end.status.code}, {"asked", end.asked}, {"killed", end.killed},
          {"out_of_memory", end.out_of_memory}, {"hung", end.hung}};
}

ReplicaEnd end_from_json(const json& end) {
  ReplicaEnd result;
  end.at("signalled").get_to(result.status.signalled);
  end.at("code").get_to(result.status.code);
  end.at("asked").get_to(result.asked);
  end.at("killed").get_to(result.killed);
  end.at("out_of_memory").get_to(result.out_of_memory);
  end.at("hung").get_to(result.hung);
  return result;
}

void put_text(json& message, std::string_view text) {
  if (is_utf8(text)) {
    message["text"] = text;
  } else {
    message["base64"] = encode_base64(text);
  }
}

std::string get_text(const json& message) {
  if (const auto text = message.find("text"); text != message.end()) return text->get<std::string>();
  const auto bytes = decode_base64(message.at("base64").get_ref<const std::string&>());
  if (!bytes) throw Error("a message has invalid base64");
  return *bytes;
}

}  // namespace adaptdl::sched
