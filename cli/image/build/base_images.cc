#include "image/build/base_images.h"

#include <fmt/format.h>

#include "adaptdl/error.h"
#include "image/build/stage_files.h"

namespace adaptdl::image {
namespace {

constexpr std::uint64_t kMaxConfigSize = std::uint64_t{8} << 20;

}  // namespace

bool BaseImage::may_have(const std::string& path) const {
  const nlohmann::json& whole = config.whole;
  const auto at = [](const nlohmann::json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found == object.end() ? nlohmann::json() : *found;
  };
  // A layer without a history entry may contain anything. The first layer is an exception: it is a distribution's base.
  const nlohmann::json history = at(whole, "history");
  std::size_t described = 0;
  for (const nlohmann::json& each : history) {
    if (at(each, "empty_layer") == true) continue;
    const nlohmann::json by = at(each, "created_by");
    if (described > 0 && (!by.is_string() || by.get_ref<const std::string&>().empty())) return true;
    ++described;
  }
  if (described < layers.size() && layers.size() > 1) return true;
  return text_mentions(history.dump() + at(whole, "config").dump(), path);
}

Manifest BaseImages::manifest(const Reference& image, const Platform& platform) {
  const auto kept = [&](const std::string& digest,
                        const std::string& type) -> std::optional<std::variant<Manifest, Index>> {
    if (digest.empty() || !cache_.blobs().find(digest)) return {};
    const auto bytes = cache_.blobs().read(digest);
    if (!bytes) return {};
    return parse_manifest(*bytes, type);
  };
  const auto pull = [&](const Reference& wanted, const std::string& type) {
    if (auto known = kept(wanted.digest, type)) return std::move(*known);
    std::variant<Manifest, Index> pulled = registry_.pull(wanted, stop_);
    std::visit([&](const auto& each) { cache_.blobs().put(each.bytes); }, pulled);
    return pulled;
  };
  std::variant<Manifest, Index> named = pull(image, "");
  if (auto* manifest = std::get_if<Manifest>(&named)) return std::move(*manifest);
  const Descriptor& chosen = choose(std::get<Index>(named), platform);
  Reference exact = image;
  exact.tag.clear();
  exact.digest = chosen.digest;
  std::variant<Manifest, Index> inner = pull(exact, chosen.media_type);
  if (auto* manifest = std::get_if<Manifest>(&inner)) return std::move(*manifest);
  throw Error("nested image indexes are not supported");
}

std::string BaseImages::config(const Reference& image, const Descriptor& descriptor) {
  if (descriptor.size > kMaxConfigSize) throw Error("the image configuration is larger than 8 MiB");
  if (cache_.blobs().find(descriptor.digest, descriptor.size))
    if (auto bytes = cache_.blobs().read(descriptor.digest)) return *bytes;
  std::string bytes;
  registry_.pull_blob(
      image, descriptor, [&](std::string_view piece) { bytes += piece; }, stop_);
  cache_.blobs().put(bytes);
  return bytes;
}

const BaseImage& BaseImages::get(const std::string& name, const Platform& platform) {
  const auto key = std::pair(name, platform.to_string());
  if (const auto known = images_.find(key); known != images_.end()) return known->second;
  Reference image = Reference::parse(name);
  BaseImage base;
  try {
    const Manifest found = manifest(image, platform);
    base.digest = found.digest;
    image.tag.clear();
    image.digest = found.digest;
    base.config = parse_config(config(image, found.config));
    if (base.config.diff_ids.size() != found.layers.size())
      throw Error("the image's configuration and manifest list different numbers of layers");
    for (std::size_t i = 0; i < found.layers.size(); ++i)
      base.layers.push_back({found.layers[i], base.config.diff_ids[i], image.full()});
  } catch (const http::Stopped&) {
    throw;
  } catch (const Error& error) {
    const std::string what = error.what();
    throw Error(what.find(image.repository) != std::string::npos ? what : fmt::format("{}: {}", name, what));
  }
  return images_.emplace(key, std::move(base)).first->second;
}

}  // namespace adaptdl::image
