// Tests built images that are written to OCI directories and archives for `docker load`.
#include "image/build/image_output.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "image/layer/layer_reader.h"
#include "image_temporary.h"

namespace image_output_test {

using namespace adaptdl;
using namespace adaptdl::image;
namespace fs = std::filesystem;

namespace {

std::string sha512(std::string_view bytes) {
  Digester digester("sha512");
  digester.update(bytes);
  return digester.digest();
}

// An image with a layer of each digest algorithm, whose blobs are in a cache. Base images may have sha512 layers.
struct Scene {
  Temporary temporary;
  BuildCache cache{temporary.path() / "cache"};
  BuiltImage image{.manifest = "manifest",
                   .digest = sha256("manifest"),
                   .config = "config",
                   .config_digest = sha256("config"),
                   .layers = {}};

  Scene() {
    add_layer("sha256", "first layer");
    add_layer("sha512", "second layer");
  }

  void add_layer(std::string_view algorithm, std::string_view bytes) {
    BlobStore::Draft draft(cache.blobs(), algorithm);
    draft.write(bytes);
    BuiltLayer layer;
    layer.descriptor.digest = draft.commit();
    layer.descriptor.size = bytes.size();
    image.layers.push_back(layer);
  }
};

// Returns the contents of the blobs that an OCI layout must contain, by path.
std::map<std::string, std::string> blobs() {
  std::map<std::string, std::string> result;
  for (const std::string bytes : {"manifest", "config", "first layer"})
    result["blobs/sha256/" + std::string(hex_of(sha256(bytes)))] = bytes;
  result["blobs/sha512/" + std::string(hex_of(sha512("second layer")))] = "second layer";
  return result;
}

}  // namespace

TEST_CASE("an OCI directory stores each blob in the directory named after its digest's algorithm") {
  const Scene scene;
  const fs::path directory = scene.temporary.path() / "out";
  for (int i = 0; i < 2; ++i) {  // the second time, the blobs exist
    write_oci_directory(scene.image, {}, scene.cache, directory);
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(directory / "blobs")) {
      if (entry.is_regular_file()) found[fs::relative(entry.path(), directory).string()] = read_file(entry.path());
    }
    CHECK(found == blobs());
  }
}

TEST_CASE("an archive stores each blob in the directory of its digest's algorithm, and lists the layers in order") {
  const Scene scene;
  const fs::path file = scene.temporary.path() / "image.tar";
  write_docker_archive(scene.image, {Reference::parse("name:tag")}, scene.cache, file);
  std::map<std::string, std::string> found;
  LayerReader reader(file, "archive");
  for (Entry entry; reader.next(entry);) {
    std::string content(entry.size, '\0');
    CHECK(reader.read(content.data(), content.size()) == content.size());
    found[entry.path] = content;
  }
  const auto listed = nlohmann::json::parse(found.at("manifest.json"));
  for (const auto& blob : blobs()) {
    CAPTURE(blob.first);
    CHECK(found[blob.first] == blob.second);
  }
  CHECK(listed[0]["RepoTags"] == nlohmann::json::array({"name:tag"}));
  CHECK(listed[0]["Layers"] == nlohmann::json::array({"blobs/sha256/" + std::string(hex_of(sha256("first layer"))),
                                                      "blobs/sha512/" + std::string(hex_of(sha512("second layer")))}));
  CHECK(listed[0]["Config"] == "blobs/sha256/" + std::string(hex_of(sha256("config"))));
}

}  // namespace image_output_test
