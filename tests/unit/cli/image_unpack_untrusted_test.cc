// Tests that layers which are malicious, damaged or implausible are rejected, and change nothing outside of their root
// directory.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "adaptdl/error.h"
#include "base/fd.h"
#include "golden.h"
#include "image/base/digest.h"
#include "image/layer/layer_writer.h"
#include "image/layer/unpack.h"
#include "image_tar.h"
#include "image_temporary.h"
#include "image_unpack_support.h"

namespace image_unpack_untrusted_test {

using namespace adaptdl;
using namespace adaptdl::image;
using namespace image_unpack_support;
namespace fs = std::filesystem;

TEST_CASE("names, links and duplicate entries cannot lead out of the root directory") {
  const std::string outside = "leads outside the root directory";
  CHECK(why(Tar().file("../evil", "x").whole()) == "'../evil' " + outside);
  CHECK(why(Tar().file("a/../../evil", "x").whole()) == "'a/../../evil' " + outside);
  CHECK(why(Tar().file("/../evil", "x").whole()) == "'/../evil' " + outside);
  CHECK(why(Tar().directory("..").whole()) == "'../' " + outside);
  CHECK(why(Tar().file("file").hard_link("h", "../outside/file").whole()) == "'../outside/file' " + outside);
  const auto has = [](const std::string& name) {
    return [name](const fs::path& root) { CHECK(text_of(root / name) == "inside"); };
  };
  CHECK(why(Tar().file("/evil", "inside").whole(), has("evil")) == "");
  CHECK(why(Tar().file("./a/.././b//c", "inside").whole(), has("b/c")) == "");
  for (const std::string to : {"/", "..", "../..", "../../../../../../../..", "/../../..", "/proc/self/root", "."}) {
    CAPTURE(to);
    Tar tar;
    tar.link("l", to);
    if (to.find("proc") != std::string::npos) tar.directory("proc/self/root");
    const std::string place = to.find("proc") != std::string::npos ? "proc/self/root/evil" : "evil";
    CHECK(why(tar.file("l/evil", "inside").whole(), has(place)) == "");
  }
  CHECK_GOLDEN(why(Tar().link("l", "../outside").file("l/file", "x").whole()));
  CHECK_GOLDEN(why(Tar().link("l", "/").hard_link("h", "l/outside/file").whole()));
  CHECK(why(Tar().link("file", "../outside/file").file("file", "inside").whole(), has("file")) == "");
  CHECK(why(Tar().link("l", "../outside/file").hard_link("h", "l").file("h", "inside").whole(), has("h")) == "");
  CHECK(why(Tar().link("d", "../outside").directory("d", 0700).file("d/file", "inside").whole(), has("d/file")) == "");
  CHECK(why(Tar().file("x", "1").directory("x").file("x/y").link("x", "a").file("x", "inside").whole(), has("x")) ==
        "");
  CHECK(why(Tar().file("x", "inside").hard_link("x", "x").whole(), has("x")) == "");
  CHECK(why(Tar().link("l", "l").file("l/x", "").whole()).find("symbolic links") != std::string::npos);
}

TEST_CASE("invalid hard links, files used as directories and overlong names are rejected") {
  CHECK_GOLDEN(why(Tar().hard_link("h", "nothing").whole()));
  CHECK_GOLDEN(why(Tar().directory("d").hard_link("h", "d").whole()));
  CHECK_GOLDEN(why(Tar().directory("d").hard_link("h", "").whole()));
  CHECK_GOLDEN(why(Tar().file("f").file("f/x").whole()));
  CHECK_GOLDEN(why(Tar().file(".").whole()));
  CHECK_GOLDEN(why(Tar().link("l", "").whole()));
  CHECK_GOLDEN(why(Tar().file(std::string(256, 'n')).whole()));
  std::string deep = "d";
  for (int i = 0; i < 255; ++i) deep += "/d";
  CHECK(why(Tar().directory(deep).whole()) == "");
  CHECK_GOLDEN(why(Tar().directory(deep + "/d").whole()));
  CHECK_GOLDEN(why(Tar().file(std::string("a\0b", 3) + std::string(100, 'x')).whole()));
}

TEST_CASE("implausible sizes, decompression bombs and too many entries are rejected") {
  Entry huge = Tar::named("huge");
  huge.size = std::uint64_t{1} << 40;
  CHECK(why(Tar().add(huge).bytes).find("1536 bytes unpack to more than") == 0);
  huge.size = std::uint64_t{1} << 31;
  CHECK(why(Tar().add(huge).bytes) == "invalid tar archive: unexpected end of file");
  UnpackOptions options;
  options.limits.expanded = 1'000'000;
  options.limits.ratio = 10;
  {
    const Temporary temporary;
    const BlobStore store(temporary.path());
    LayerWriter writer(store);
    Entry zeros = Tar::named("zeros");
    zeros.size = 50'000'000;
    writer.add(zeros, [&, left = zeros.size](char* data, std::size_t size) mutable {
      size = std::min<std::size_t>(size, left);
      left -= size;
      std::fill(data, data + size, '\0');
      return size;
    });
    const std::string bomb = read_file(store.path_of(writer.finish().digest));
    CHECK(bomb.size() < 100'000);
    CHECK(why(bomb, {}, options).find("which is not plausible for a layer") != std::string::npos);
    CHECK(why(bomb) == "");
  }
  options = {};
  options.limits.entries = 3;
  CHECK(why(Tar().file("a").file("b").file("c").file("d").whole(), {}, options) == "more than 3 entries");
}

// Prevents or allows the removal of entries. Returns false if the file system or the user does not permit that.
bool make_immutable(const fs::path& directory, bool immutable) {
  const Fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  int flags = 0;
  if (::ioctl(fd.get(), FS_IOC_GETFLAGS, &flags) != 0) return false;
  flags = immutable ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
  return ::ioctl(fd.get(), FS_IOC_SETFLAGS, &flags) == 0;
}

TEST_CASE("remove_tree does not follow a link that cannot be removed") {
  const Temporary temporary;
  const fs::path outside = temporary / "outside", tree = temporary / "tree";
  fs::create_directory(outside);
  fs::permissions(outside, fs::perms::owner_read | fs::perms::owner_exec);
  fs::create_directory(tree);
  fs::create_directory_symlink(outside, tree / "link");
  if (!make_immutable(tree, true)) {
    MESSAGE("skipped: this user or file system has no immutable directories");
    return;
  }
  std::string error;
  try {
    remove_tree(tree);
  } catch (const Error& caught) {
    error = caught.what();
  }
  CHECK(make_immutable(tree, false));
  CHECK(error.find("cannot remove 'link': ") == 0);
  CHECK(fs::status(outside).permissions() == (fs::perms::owner_read | fs::perms::owner_exec));
}

TEST_CASE("a truncated layer is rejected, and a damaged one leaves nothing behind" * doctest::test_suite("slow")) {
  const Temporary temporary;
  const BlobStore store(temporary.path());
  for (const Compression compression : {Compression::kGzip, Compression::kZstd, Compression::kNone}) {
    LayerOptions options;
    options.compression = compression;
    LayerWriter writer(store, options);
    Entry entry = Tar::named("a/b");
    entry.size = 5;
    entry.xattrs = {{"user.x", "y"}};
    bool given = false;
    writer.add(entry, [&](char* data, std::size_t) {
      if (std::exchange(given, true)) return std::size_t{0};
      std::copy_n("hello", 5, data);
      return std::size_t{5};
    });
    const Layer layer = writer.finish();
    const std::string good = read_file(store.path_of(layer.digest));
    CHECK(why(good, {}, {}, layer.diff_id) == "");
    CHECK(why(good, {}, {}, sha256("")) == "digest mismatch: the content's digest is " + layer.diff_id);
    const std::size_t step = compression == Compression::kNone ? 7 : 1;
    const auto fails = [&](const std::string& bytes) {
      write_file(temporary / "bad.layer", bytes);
      try {
        unpack_layer(temporary / "bad.layer", layer.diff_id, temporary / "root");
        remove_tree(temporary / "root");
        return false;
      } catch (const Error&) {
        return true;
      }
    };
    for (std::size_t size = 0; size < good.size(); size += step) {
      CAPTURE(size);
      CHECK(fails(good.substr(0, size)));
    }
    for (std::size_t at = 0; at < good.size(); at += step) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x20);
      fails(bad);
    }
  }
  CHECK(run("ls -A " + temporary.path().string()) == "bad.layer\nblobs\n");
}

TEST_CASE("a very deep tree is removed, and the targets of its links are kept" * doctest::test_suite("slow")) {
  const Temporary temporary;
  fs::create_directory(temporary / "outside");
  write_file(temporary / "outside/file", "x");
  run("cd " + temporary.path().string() +
      " && mkdir tree && ln -s ../outside tree/link && cd tree && python3 -c 'import os\n"
      "for i in range(3000):\n os.mkdir(\"d\" * 20); os.chdir(\"d\" * 20)'");
  remove_tree(temporary / "tree");
  CHECK_FALSE(fs::exists(temporary / "tree"));
  CHECK(fs::exists(temporary / "outside/file"));
  remove_tree(temporary / "tree");
}

}  // namespace image_unpack_untrusted_test
