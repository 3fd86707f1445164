#include "image/build/image_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "image/base/draft_file.h"
#include "image/layer/tar_header.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kOutputPiece = std::size_t{1} << 20;
constexpr const char* kLayout = R"({"imageLayoutVersion":"1.0.0"})";

std::string blob_name(std::string digest) {
  std::ranges::replace(digest, ':', '/');
  return "blobs/" + digest;
}

// Returns the name as Docker shows it, with a tag.
std::string docker_name(const Reference& tag) { return tag.tag.empty() ? tag.brief() + ":latest" : tag.brief(); }

std::string index_json(const BuiltImage& image, const std::vector<Reference>& tags) {
  json manifests = json::array();
  const json one = {{"mediaType", media::kManifest}, {"digest", image.digest}, {"size", image.manifest.size()}};
  for (const Reference& tag : tags) {
    manifests.push_back(one);
    manifests.back()["annotations"] = {{"io.containerd.image.name", tag.full()},
                                       {"org.opencontainers.image.ref.name", tag.version()}};
  }
  if (tags.empty()) manifests.push_back(one);
  return json{{"schemaVersion", 2}, {"mediaType", media::kIndex}, {"manifests", manifests}}.dump();
}

void for_each_piece(const fs::path& file, std::uint64_t size, const std::function<void(std::string_view)>& use) {
  const Blob blob = file_blob(file, "");
  std::string piece(kOutputPiece, '\0');
  for (std::uint64_t at = 0; at < size;) {
    const std::size_t count = blob.read(at, piece.data(), std::min<std::uint64_t>(piece.size(), size - at));
    if (count == 0) throw Error(one_line(fmt::format("'{}' became shorter while it was being read", file.string())));
    use(std::string_view(piece).substr(0, count));
    at += count;
  }
}

// Copies atomically: after a failure `to` is unchanged.
void copy_file(const fs::path& from, const fs::path& to, std::uint64_t size) {
  DraftFile draft(to);
  for_each_piece(from, size, [&](std::string_view piece) { draft.write(piece); });
  draft.commit();
}

// A tar archive of regular files. The archive receives its final name when it is complete.
class TarFile {
 public:
  explicit TarFile(const fs::path& file) : draft_(file) {}

  void add(const std::string& name, std::string_view bytes) {
    begin(name, bytes.size());
    put(bytes);
    end(bytes.size());
  }
  void add_file(const std::string& name, const fs::path& file, std::uint64_t size) {
    begin(name, size);
    for_each_piece(file, size, [&](std::string_view piece) { put(piece); });
    end(size);
  }
  void finish() {
    put(std::string(2 * kTarBlock, '\0'));
    draft_.commit();
  }

 private:
  void put(std::string_view bytes) { draft_.write(bytes); }
  void end(std::uint64_t size) { put(std::string(tar_padding(size), '\0')); }
  void begin(const std::string& name, std::uint64_t size) {
    Entry entry;
    entry.path = name;
    entry.size = size;
    put(tar_header(entry));
  }

  DraftFile draft_;
};

}  // namespace

void write_oci_directory(const BuiltImage& image, const std::vector<Reference>& tags, const BuildCache& cache,
                         const fs::path& directory) {
  if (fs::exists(directory) && !fs::exists(directory / "oci-layout") &&
      (!fs::is_directory(directory) || !fs::is_empty(directory)))
    throw Error(fmt::format("'{}' exists and is not an OCI directory; remove it or choose another directory",
                            directory.string()));
  try {
    for (const std::string& digest : {image.config_digest, image.digest})
      fs::create_directories((directory / blob_name(digest)).parent_path());
    for (const BuiltLayer& layer : image.layers) {
      const fs::path to = directory / blob_name(layer.descriptor.digest);
      fs::create_directories(to.parent_path());
      if (fs::exists(to) && fs::file_size(to) == layer.descriptor.size) continue;
      copy_file(cache.blobs().path_of(layer.descriptor.digest), to, layer.descriptor.size);
    }
  } catch (const fs::filesystem_error& error) {
    throw Error(one_line(fmt::format("cannot write '{}': {}", directory.string(), error.code().message())));
  }
  write_whole(directory / blob_name(image.config_digest), image.config);
  write_whole(directory / blob_name(image.digest), image.manifest);
  write_whole(directory / "oci-layout", kLayout);
  write_whole(directory / "index.json", index_json(image, tags));
}

void write_docker_archive(const BuiltImage& image, const std::vector<Reference>& tags, const BuildCache& cache,
                          const fs::path& file) {
  TarFile tar(file);
  json layers = json::array(), names = json::array();
  std::set<std::string> written;
  for (const BuiltLayer& layer : image.layers) {
    const std::string name = blob_name(layer.descriptor.digest);
    layers.push_back(name);
    if (written.insert(name).second)
      tar.add_file(name, cache.blobs().path_of(layer.descriptor.digest), layer.descriptor.size);
  }
  for (const Reference& tag : tags) names.push_back(docker_name(tag));
  tar.add(blob_name(image.config_digest), image.config);
  tar.add(blob_name(image.digest), image.manifest);
  tar.add("index.json", index_json(image, tags));
  tar.add("manifest.json",
          json::array({{{"Config", blob_name(image.config_digest)}, {"RepoTags", names}, {"Layers", layers}}}).dump());
  tar.add("oci-layout", kLayout);
  tar.finish();
}

}  // namespace adaptdl::image
