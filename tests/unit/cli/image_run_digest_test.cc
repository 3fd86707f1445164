// Tests that a RUN step produces the same layer, byte for byte, for all users.
// The test runs as root and as another user.
#include <doctest/doctest.h>

#include "image/layer/blob_store.h"
#include "image/layer/layer_writer.h"
#include "image/sandbox/overlay_changes.h"
#include "image_root.h"

namespace image_run_digest_test {

using namespace testing;

namespace {

std::string diff_id(const fs::path& upper, const fs::path& blobs) {
  const BlobStore store(blobs);
  LayerWriter writer(store, {.compression = Compression::kNone, .latest_time = 1000000000});
  add_overlay_changes(upper, writer);
  return writer.finish().diff_id;
}

}  // namespace

TEST_CASE("the changes of a RUN step have the expected layer digest") {
  if (!build_namespace.one_id.empty()) return;
  Steps steps;
  write(steps.root() / "lib/module/one", "1");
  write(steps.root() / "lib/module/two", "2");
  write(steps.root() / "lib/kept/three", "3");

  SandboxStep first = steps.step(R"(set -e
    mkdir -p -m 750 /srv/data; cd /srv/data
    echo text > file; chown 500:501 file; chmod 4711 file
    ln file hard; ln -s ../file soft; chown -h 33:33 soft
    touch -d @12345 old; chmod 1777 /srv
    dd if=/dev/zero of=sparse bs=1 count=1 seek=5000000 2>/dev/null
    su -s /bin/sh maker -c 'echo mine > /srv/mine'
    rm -r /lib/module; mkdir /lib/module; echo new > /lib/module/new
    mv /lib/kept /lib/moved
    rm /etc/group; chown 0:502 /etc/passwd)");
  first.mounts = {mount_of(Mount::Type::kCache, "/srv/cache"), mount_of(Mount::Type::kSecret, "/lib/secret")};
  first.mounts[1].content = "nothing of this";
  CHECK(steps.run(first) == "");
  CHECK(diff_id(steps.upper(), steps.path("blobs")) ==
        "sha256:918fff1dce013927e762c7412ab8d0bcb1c41f2c4da189c89cd36d690794a748");

  SandboxStep second = steps.step("rm /srv/data/hard /lib/module/new; echo more >> /srv/mine");
  second.root.lower = {first.root.upper, steps.root()};
  CHECK(steps.run(second) == "");
  CHECK(tree(steps.upper()) == std::vector<std::string>{"lib/", "lib/module/", "lib/module/new", "srv/", "srv/data/",
                                                        "srv/data/hard", "srv/mine"});
  CHECK(diff_id(steps.upper(), steps.path("blobs")) ==
        "sha256:452e565a56e0a219cb047772680b5496f50fca0608360a1d424a62b9dc1461c1");
}

}  // namespace image_run_digest_test
