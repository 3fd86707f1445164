#include "image/registry/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "base/foreign_json.h"
#include "base/printable.h"
#include "image/base/digest.h"
#include "image/base/json_text.h"

namespace adaptdl::image {
namespace {

using nlohmann::json;
constexpr std::uint64_t kMaxBlobSize = std::uint64_t{1} << 50;
constexpr std::size_t kMaxParts = 10000;

Platform parse_platform(const json& platform) {
  return Platform::of_image(text_at(platform, "os"), text_at(platform, "architecture"), text_at(platform, "variant"));
}

Descriptor parse_descriptor(const json& object, const std::string& where) {
  if (!object.is_object()) throw Error(where + " must be an object");
  Descriptor descriptor{text_at(object, "mediaType"), text_at(object, "digest"), 0, {}};
  if (!is_digest(descriptor.digest)) throw Error(where + " has no sha256 or sha512 digest");
  const auto size = object.find("size");
  if (size == object.end() || !size->is_number_unsigned() || size->get<std::uint64_t>() > kMaxBlobSize)
    throw Error(where + " has no valid size");
  descriptor.size = size->get<std::uint64_t>();
  if (const auto platform = object.find("platform"); platform != object.end() && platform->is_object())
    descriptor.platform = parse_platform(*platform);
  return descriptor;
}

std::vector<Descriptor> parse_list(const json& list, const char* name) {
  if (!list.is_array()) throw Error(fmt::format("'{}' must be a list", name));
  if (list.size() > kMaxParts) throw Error(fmt::format("'{}' has more than {} entries", name, kMaxParts));
  std::vector<Descriptor> descriptors;
  for (const json& each : list)
    descriptors.push_back(parse_descriptor(each, fmt::format("{}[{}]", name, descriptors.size())));
  return descriptors;
}

bool is_schema_1(const json& content, std::string_view type) {
  const auto version = content.find("schemaVersion");
  return type.find("manifest.v1+") != std::string_view::npos ? type.find(".docker.") != std::string_view::npos
                                                             : version != content.end() && *version == 1;
}

// Removes parameters, such as "; charset=utf-8". Returns "" for types that mean only JSON or arbitrary content.
std::string_view essence(std::string_view type) {
  type = type.substr(0, type.find_first_of("; \t"));
  return type == "application/json" || type == "text/plain" || type == "application/octet-stream" ? "" : type;
}

// Returns the number in a variant such as v7; `none` if there is no variant, and 0 for other variants.
int level(const std::string& variant, int none) {
  if (variant.empty()) return none;
  return variant.size() == 2 && variant[0] == 'v' && variant[1] >= '1' && variant[1] <= '9' ? variant[1] - '0' : 0;
}

// Rates how well an image for `built` runs on `machine`: 0 means not at all, and larger is better.
int fitness(const Platform& built, const Platform& machine) {
  if (built.os != machine.os || built.architecture != machine.architecture) return 0;
  if (built.variant == machine.variant) return 100;
  // Later processor generations run code for earlier ones.
  const int first = built.architecture == "arm64" ? 8 : 1;
  const int built_level = level(built.variant, first), machine_level = level(machine.variant, first);
  return built_level < machine_level ? built_level : 0;
}

}  // namespace

std::variant<Manifest, Index> parse_manifest(std::string bytes, std::string_view declared) {
  const json content = parse_foreign_json(bytes);
  if (!content.is_object()) throw Error("the manifest is not a JSON object");
  const std::string_view declared_type = essence(declared);
  const std::string inside = text_at(content, "mediaType");
  if (is_schema_1(content, declared_type))
    throw Error(
        "the manifest uses Docker's schema 1, which is no longer supported; push the image again with a current tool");
  // A document that could be read as both a manifest and an index is rejected.
  const bool has_manifests = content.contains("manifests"), has_layers = content.contains("layers");
  if (has_manifests == has_layers)
    throw Error("the document must contain either 'layers', as an image manifest, or 'manifests', as an image index");
  if (!inside.empty() && !declared_type.empty() && inside != declared_type)
    throw Error(fmt::format("the manifest has the media type '{}', but the registry reports '{}'",
                            one_line(inside, 100), one_line(declared_type, 100)));
  std::string type = !inside.empty() ? inside : std::string(declared_type);
  if (type.empty()) type = has_manifests ? media::kIndex : media::kManifest;
  const bool is_index = type == media::kIndex || type == media::kDockerList;
  if (!is_index && type != media::kManifest && type != media::kDockerManifest)
    throw Error(fmt::format("media type '{}' is not supported", one_line(type, 100)));
  if (is_index != has_manifests) throw Error(fmt::format("the manifest does not match its media type '{}'", type));
  std::string digest = sha256(bytes);
  if (is_index)
    return Index{std::move(type), std::move(digest), std::move(bytes), parse_list(content["manifests"], "manifests")};
  if (!content.contains("config")) throw Error("the manifest has no config");
  return Manifest{std::move(type), std::move(digest), std::move(bytes), parse_descriptor(content["config"], "config"),
                  parse_list(content["layers"], "layers")};
}

const Descriptor& choose(const Index& index, const Platform& machine) {
  const Descriptor* best = nullptr;
  int best_fit = 0;
  std::vector<std::string> there;
  for (const Descriptor& each : index.manifests) {
    const int fit = each.platform ? fitness(*each.platform, machine) : index.manifests.size() == 1 ? 1 : 0;
    if (fit > best_fit) {
      best = &each;
      best_fit = fit;
    }
    // Attestations are listed with an unknown platform.
    if (each.platform && each.platform->os != "unknown") there.push_back(one_line(each.platform->to_string(), 60));
  }
  if (best) return *best;
  if (there.size() > 20) there.resize(20);
  throw Error(fmt::format("no image for {}{}{}", machine.to_string(), there.empty() ? "" : ", only for ",
                          fmt::join(there, ", ")));
}

}  // namespace adaptdl::image
