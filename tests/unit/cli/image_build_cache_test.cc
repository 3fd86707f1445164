#include "image/layer/build_cache.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "image_temporary.h"

namespace image_build_cache_test {

using namespace adaptdl;
using namespace adaptdl::image;
namespace fs = std::filesystem;

namespace {

const std::string kChain = "sha256:" + std::string(64, 'a');

void keep_tree(const BuildCache& cache) {
  fs::create_directories(cache.tree_path(kChain));
  write_file(cache.tree_path(kChain) / "file", "");
  cache.used_tree(kChain, 1);
}

}  // namespace

TEST_CASE("after a reboot, corrupted blobs and all unpacked layers are removed, and the rest is kept") {
  const Temporary temporary;
  std::string whole, lost;
  {
    const BuildCache cache(temporary / "cache");
    whole = cache.blobs().put("whole");
    lost = cache.blobs().put("lost in a power cut");
    keep_tree(cache);
    cache.keep("downloads", kChain, {{"etag", "x"}});
  }
  write_file(temporary / "cache" / "steps" / std::string(64, 'b'), "");
  write_file(BlobStore(temporary / "cache").path_of(lost), std::string(19, '\0'));
  {
    const BuildCache same_boot(temporary / "cache");
    CHECK(same_boot.blobs().find(lost, 19));
    CHECK(same_boot.find_tree(kChain));
  }
  write_file(temporary / "cache" / "boot", "00000000-0000-0000-0000-000000000000\n");
  const BuildCache next_boot(temporary / "cache");
  CHECK(next_boot.blobs().find(whole));
  CHECK_FALSE(next_boot.blobs().find(lost));
  CHECK_FALSE(next_boot.find_tree(kChain));
  CHECK_FALSE(fs::exists(next_boot.tree_path(kChain)));
  CHECK_FALSE(next_boot.find_step("sha256:" + std::string(64, 'b')));
  CHECK(next_boot.find("downloads", kChain).at("etag") == "x");
  keep_tree(next_boot);
  CHECK(next_boot.find_tree(kChain));
}

TEST_CASE("a cache is not cleaned up after a reboot while another build is using it") {
  const Temporary temporary;
  const BuildCache first(temporary / "cache");
  keep_tree(first);
  write_file(temporary / "cache" / "boot", "another");
  const BuildCache second(temporary / "cache");
  CHECK(second.find_tree(kChain));
}

TEST_CASE("a cache's directories are private to the owner even if the cache directory already existed") {
  const Temporary temporary;
  fs::create_directory(temporary / "cache");
  ::chmod((temporary / "cache").c_str(), 0755);
  const BuildCache cache(temporary / "cache");
  for (const auto& part : fs::directory_iterator(temporary / "cache"))
    if (part.is_directory())
      CHECK_MESSAGE((part.status().permissions() & fs::perms::all) == fs::perms::owner_all, part.path().string());
}

TEST_CASE("a build as root rejects a cache owned by another user") {
  if (::geteuid() != 0) return;
  const Temporary temporary;
  fs::create_directory(temporary / "cache");
  REQUIRE(::chown((temporary / "cache").c_str(), 1234, 1234) == 0);
  CHECK_GOLDEN(::testing::error_of([&] { BuildCache(temporary / "cache"); }));
}

}  // namespace image_build_cache_test
