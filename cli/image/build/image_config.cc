#include "image/build/image_config.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>

#include "adaptdl/error.h"
#include "base/foreign_json.h"
#include "image/base/digest.h"
#include "image/base/json_text.h"
#include "image/layer/layer_writer.h"
#include "image/registry/manifest.h"

namespace adaptdl::image {
namespace {

using nlohmann::json;

std::optional<std::vector<std::string>> words_at(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return {};
  std::vector<std::string> words;
  for (const json& each : *found) {
    if (!each.is_string()) throw Error(fmt::format("'{}' in the image configuration must be a list of strings", key));
    words.push_back(each.get<std::string>());
  }
  return words;
}

std::set<std::string> keys_at(const json& object, const char* key) {
  std::set<std::string> keys;
  if (const auto found = object.find(key); found != object.end() && found->is_object())
    for (const auto& [name, value] : found->items()) keys.insert(name);
  return keys;
}

json keys_json(const std::set<std::string>& keys) {
  json object = json::object();
  for (const std::string& key : keys) object[key] = json::object();
  return object;
}

std::chrono::nanoseconds duration_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return std::chrono::nanoseconds(found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0);
}

Healthcheck parse_healthcheck(const json& object) {
  Healthcheck check{.test = words_at(object, "Test").value_or(std::vector<std::string>{}),
                    .interval = duration_at(object, "Interval"),
                    .timeout = duration_at(object, "Timeout"),
                    .start_period = duration_at(object, "StartPeriod"),
                    .start_interval = duration_at(object, "StartInterval")};
  if (const auto retries = object.find("Retries"); retries != object.end() && retries->is_number_integer())
    check.retries = retries->get<int>();
  return check;
}

json healthcheck_json(const Healthcheck& check) {
  json object = {{"Test", check.test}};
  const auto set = [&](const char* key, std::int64_t value) {
    if (value != 0) object[key] = value;
  };
  set("Interval", check.interval.count());
  set("Timeout", check.timeout.count());
  set("StartPeriod", check.start_period.count());
  set("StartInterval", check.start_interval.count());
  set("Retries", check.retries);
  return object;
}

ImageConfig image_config(const json& object) {
  ImageConfig config;
  for (const std::string& each : words_at(object, "Env").value_or(std::vector<std::string>{})) {
    const std::size_t equals = each.find('=');
    if (equals == 0) continue;
    config.environment.push_back({each.substr(0, equals), equals == std::string::npos ? "" : each.substr(equals + 1)});
  }
  config.entrypoint = words_at(object, "Entrypoint");
  config.command = words_at(object, "Cmd");
  if (const auto labels = object.find("Labels"); labels != object.end() && labels->is_object())
    for (const auto& [name, value] : labels->items())
      if (value.is_string()) config.labels[name] = value.get<std::string>();
  config.exposed_ports = keys_at(object, "ExposedPorts");
  config.volumes = keys_at(object, "Volumes");
  config.user = text_at(object, "User");
  config.working_directory = text_at(object, "WorkingDir");
  config.stop_signal = text_at(object, "StopSignal");
  config.shell = words_at(object, "Shell").value_or(std::vector<std::string>{});
  if (const auto check = object.find("Healthcheck"); check != object.end() && check->is_object())
    config.healthcheck = parse_healthcheck(*check);
  return config;
}

// Converts Docker's media types for layers to the equivalent OCI types.
std::string oci_layer_type(const std::string& type) {
  if (type == media::kDockerLayerGzip) return std::string(media::kLayerGzip);
  if (type == "application/vnd.docker.image.rootfs.diff.tar") return std::string(media::kLayer);
  if (type == "application/vnd.docker.image.rootfs.diff.tar.zstd") return std::string(media::kLayerZstd);
  if (type == "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip")
    return "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip";
  return type;
}

}  // namespace

ParsedConfig parse_config(std::string_view bytes) {
  ParsedConfig parsed;
  parsed.whole = parse_foreign_json(bytes);
  if (!parsed.whole.is_object()) throw Error("the image configuration is not a JSON object");
  const auto rootfs = parsed.whole.find("rootfs");
  if (rootfs == parsed.whole.end() || !rootfs->is_object()) throw Error("the image configuration lists no layers");
  parsed.diff_ids = words_at(*rootfs, "diff_ids").value_or(std::vector<std::string>{});
  for (const std::string& each : parsed.diff_ids)
    if (!is_digest(each)) throw Error("the image configuration lists a layer without a valid digest");
  if (const auto config = parsed.whole.find("config"); config != parsed.whole.end() && config->is_object()) {
    parsed.config = image_config(*config);
    parsed.triggers = words_at(*config, "OnBuild").value_or(std::vector<std::string>{});
  }
  parsed.config.author = text_at(parsed.whole, "author");
  parsed.date = parse_time(text_at(parsed.whole, "created"));
  return parsed;
}

std::string config_json(const json& base, const ImageConfig& config, const Platform& platform, std::int64_t date,
                        const std::vector<HistoryEntry>& history, const std::vector<std::string>& diff_ids) {
  json image = base.is_object() ? base : json::object();
  for (const char* gone : {"container", "container_config", "docker_version", "id", "parent", "Size"})
    image.erase(gone);
  const auto set = [](json& object, const char* key, json value) {
    if (value.empty())
      object.erase(key);
    else
      object[key] = std::move(value);
  };
  if (!image.contains("architecture")) {
    image["architecture"] = platform.architecture;
    image["os"] = platform.os;
    if (!platform.variant.empty()) image["variant"] = platform.variant;
  }
  image["created"] = time_text(date);
  if (config.author.empty())
    image.erase("author");
  else
    image["author"] = config.author;

  if (!image["config"].is_object()) image["config"] = json::object();
  json& inner = image["config"];
  json environment = json::array();
  for (const Pair& pair : config.environment) environment.push_back(pair.name + "=" + pair.value);
  set(inner, "Env", std::move(environment));
  set(inner, "Entrypoint", config.entrypoint ? json(*config.entrypoint) : json());
  set(inner, "Cmd", config.command ? json(*config.command) : json());
  set(inner, "Labels", json(config.labels));
  set(inner, "ExposedPorts", keys_json(config.exposed_ports));
  set(inner, "Volumes", keys_json(config.volumes));
  set(inner, "Shell", json(config.shell));
  set(inner, "OnBuild", json(config.on_build));
  set(inner, "Healthcheck", config.healthcheck ? healthcheck_json(*config.healthcheck) : json());
  for (const auto& [key, value] : {std::pair<const char*, const std::string&>{"User", config.user},
                                   {"WorkingDir", config.working_directory},
                                   {"StopSignal", config.stop_signal}}) {
    if (value.empty())
      inner.erase(key);
    else
      inner[key] = value;
  }

  json& past = image["history"];
  if (!past.is_array()) past = json::array();
  for (const HistoryEntry& each : history) {
    json entry = {{"created", time_text(each.date)}, {"created_by", each.created_by}, {"comment", "adaptdl"}};
    if (!each.author.empty()) entry["author"] = each.author;
    if (each.empty_layer) entry["empty_layer"] = true;
    past.push_back(std::move(entry));
  }
  image["rootfs"] = {{"type", "layers"}, {"diff_ids", diff_ids}};
  return image.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string manifest_json(const std::string& config, const std::vector<BuiltLayer>& layers) {
  json list = json::array();
  for (const BuiltLayer& layer : layers)
    list.push_back({{"mediaType", oci_layer_type(layer.descriptor.media_type)},
                    {"digest", layer.descriptor.digest},
                    {"size", layer.descriptor.size}});
  return json{{"schemaVersion", 2},
              {"mediaType", media::kManifest},
              {"config",
               {{"mediaType", "application/vnd.oci.image.config.v1+json"},
                {"digest", sha256(config)},
                {"size", config.size()}}},
              {"layers", std::move(list)}}
      .dump();
}

std::string time_text(std::int64_t seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

std::int64_t parse_time(const std::string& text) {
  std::tm time{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (end == nullptr) return 0;
  std::int64_t seconds = ::timegm(&time);
  if (*end == '.') do
      ++end;
    while (*end >= '0' && *end <= '9');
  const std::string zone(end);
  if (zone.size() == 6 && (zone[0] == '+' || zone[0] == '-')) {
    const int hours = std::atoi(zone.substr(1, 2).c_str()), minutes = std::atoi(zone.substr(4, 2).c_str());
    seconds -= (zone[0] == '+' ? 1 : -1) * (hours * 3600 + minutes * 60);
  }
  return std::max<std::int64_t>(seconds, 0);
}

}  // namespace adaptdl::image
