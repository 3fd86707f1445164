#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "adaptdl/error.h"
#include "image/base/parallel.h"
#include "image/build/image_output.h"

namespace adaptdl::image {
namespace {

constexpr unsigned kTransfers = 4;

// Returns the repositories in the target's registry that may contain a layer: the layer's origin, and the earlier push
// targets.
std::vector<std::string> repositories_with(const BuiltLayer& layer, const Reference& target,
                                           const std::vector<Reference>& pushed) {
  std::vector<std::string> repositories;
  if (!layer.from.empty()) {
    const Reference from = Reference::parse(layer.from);
    if (from.registry == target.registry) repositories.push_back(from.repository);
  }
  for (const Reference& other : pushed)
    if (other.registry == target.registry) repositories.push_back(other.repository);
  return repositories;
}

void push_to(const BuiltImage& image, const Reference& target, const std::vector<Reference>& before,
             const BuildCache& cache, Registry& registry, LayerProvider& provider, BuildReport& report,
             unsigned threads, const std::stop_token& stop) {
  // Each layer is pushed once, even if the image contains it several times.
  std::vector<BuiltLayer> layers;
  std::set<std::string> known;
  std::uint64_t bytes = image.config.size();
  for (const BuiltLayer& layer : image.layers)
    if (known.insert(layer.descriptor.digest).second) {
      layers.push_back(layer);
      bytes += layer.descriptor.size;
    }
  TransferReport progress(report, "push " + target.full(), bytes);
  std::vector<char> there(layers.size(), 0);
  const unsigned transfers = std::max(threads, kTransfers);
  for_each_parallel(layers.size(), transfers, stop, [&](std::size_t i, const std::stop_token& stopped) {
    there[i] = registry.has_blob(target, layers[i].descriptor.digest, stopped);
    if (there[i]) progress.there(layers[i].descriptor.size);
  });
  // Layers that may be in another repository of the target's registry are not downloaded first, since the registry can
  // usually mount them.
  std::vector<BuiltLayer> wanted;
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (!there[i] && repositories_with(layers[i], target, before).empty()) wanted.push_back(layers[i]);
  provider.fetch(wanted);
  std::mutex fetching;
  for_each_parallel(layers.size() + 1, transfers, stop, [&](std::size_t i, const std::stop_token& stopped) {
    const Progress moved = [&](std::int64_t count) { progress.add(count); };
    if (i == layers.size()) {
      if (registry.push_blob(target, memory_blob(image.config), {}, stopped, moved) != Pushed::kUploaded)
        progress.there(image.config.size());
      return;
    }
    if (there[i]) return;
    const BuiltLayer& layer = layers[i];
    const auto file = cache.blobs().path_of(layer.descriptor.digest);
    Blob blob{layer.descriptor.digest, layer.descriptor.size,
              [&, opened = std::optional<Blob>()](std::uint64_t offset, char* data, std::size_t size) mutable {
                if (!opened) {
                  const std::scoped_lock lock(fetching);
                  provider.fetch({layer});
                  opened = file_blob(file, layer.descriptor.digest);
                }
                return opened->read(offset, data, size);
              }};
    const Pushed how = registry.push_blob(target, blob, repositories_with(layer, target, before), stopped, moved);
    if (how != Pushed::kUploaded) progress.there(layer.descriptor.size);
  });
  progress.finish();
}

}  // namespace

std::vector<std::string> push_image(const BuiltImage& image, const std::vector<Reference>& tags,
                                    const BuildCache& cache, Registry& registry, LayerProvider& provider,
                                    BuildReport& report, unsigned threads, const std::stop_token& stop) {
  std::vector<Reference> before;
  std::vector<std::string> pushed;
  for (const Reference& tag : tags) {
    const bool known = std::any_of(before.begin(), before.end(), [&](const Reference& other) {
      return other.registry == tag.registry && other.repository == tag.repository;
    });
    if (!known) push_to(image, tag, before, cache, registry, provider, report, threads, stop);
    registry.push_manifest(tag, std::string(media::kManifest), image.manifest, stop);
    before.push_back(tag);
    pushed.push_back(fmt::format("{}/{}@{}", tag.registry, tag.repository, image.digest));
  }
  return pushed;
}

}  // namespace adaptdl::image
