// Tests that an unpacked layer has the files, directories, whiteouts, devices and owners that the layer describes.
#include "image/layer/unpack.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "adaptdl/error.h"
#include "image/layer/layer_writer.h"
#include "image/sandbox/overlay_changes.h"
#include "image_tar.h"
#include "image_temporary.h"
#include "image_unpack_support.h"

namespace image_unpack_test {

using namespace adaptdl;
using namespace adaptdl::image;
using namespace image_unpack_support;
namespace fs = std::filesystem;

TEST_CASE("unpacked files have the modes, times, links and contents of the layer") {
  Tar tar;
  tar.directory("dir", 01777).file("dir/file", "hello").link("dir/link", "../else").hard_link("hard", "dir/file");
  Entry special = Tar::named("set-id");
  special.mode = 06711;
  tar.add(special, "x");
  tar.directory("late", 0555).file("late/file", "y").add(Tar::named("pipe", Entry::Type::kFifo));
  CHECK(why(tar.whole(), [](const fs::path& root) {
          CHECK(text_of(root / "hard") == "hello");
          CHECK(fs::hard_link_count(root / "hard") == 2);
          CHECK(fs::read_symlink(root / "dir/link") == "../else");
          CHECK(run("cd " + root.string() + " && stat -c '%n %a %Y %F' dir dir/file dir/link set-id late pipe") ==
                "dir 1777 1600000000 directory\ndir/file 644 1600000000 regular file\n"
                "dir/link 777 1600000000 symbolic link\nset-id 6711 1600000000 regular file\n"
                "late 555 1600000000 directory\npipe 644 1600000000 fifo\n");
        }) == "");
}

TEST_CASE("whiteouts and opaque markers are converted to overlayfs's format, and invalid ones are rejected") {
  CHECK(why(Tar().file(".wh.gone").file("dir/.wh.gone").file("dir/.wh..wh..opq").whole(), [](const fs::path& root) {
          CHECK(run("cd " + root.string() + " && stat -c '%F %t %T' gone dir/gone") ==
                "character special file 0 0\ncharacter special file 0 0\n");
          CHECK(run("getfattr --only-values -n user.overlay.opaque " + (root / "dir").string() + " 2>/dev/null || true")
                    .find('y') != std::string::npos);
        }) == "");
  // Whatever the order, whiteouts hide entries of the layers below, but not entries of their own layer.
  for (const bool first : {false, true}) {
    Tar tar;
    if (first) tar.file(".wh.d").file(".wh.f");
    tar.directory("d").file("d/x").file("f", "new");
    if (!first) tar.file(".wh.d").file(".wh.f");
    CHECK(why(tar.whole(), [](const fs::path& root) {
            CHECK(text_of(root / "f") == "new");
            CHECK(fs::exists(root / "d/x"));
            CHECK(run("getfattr -n user.overlay.opaque " + (root / "d").string()).find("\"y\"") != std::string::npos);
          }) == "");
  }
  CHECK(why(Tar().file(".wh.d").file("d/x").whole(), [](const fs::path& root) {
          CHECK(run("getfattr -n user.overlay.opaque " + (root / "d").string()).find("\"y\"") != std::string::npos);
        }) == "");
  for (const std::string name : {".wh.", ".wh..", ".wh...", "a/.wh.", "a/.wh...", ".wh.x/y", "a/.wh.x/y"}) {
    CAPTURE(name);
    CHECK(why(Tar().file(name).whole()) == "'" + name + "' is not a valid name in a layer");
  }
  CHECK(why(Tar().file(".wh..wh.aufs").directory(".wh..wh.plnk").file(".wh..wh.plnk/1.2", "x").whole(),
            [](const fs::path& root) { CHECK(fs::is_empty(root)); }) == "");
}

TEST_CASE("reserved xattrs are dropped, and a 0/0 character device is a whiteout") {
  Entry entry = Tar::named("d", Entry::Type::kDirectory);
  entry.xattrs = {{"user.overlay.opaque", "y"},    {"user.overlay.redirect", "/etc"},
                  {"trusted.overlay.opaque", "y"}, {"trusted.mine", "1"},
                  {"security.mine", "1"},          {"user.mine", "1"}};
  CHECK(why(Tar().add(entry).device("w", 0, 0).whole(), [](const fs::path& root) {
          CHECK(run("getfattr -d -m - " + (root / "d").string() + " | grep =") == "user.mine=\"1\"\n");
          CHECK(run("stat -c '%F %t %T' " + (root / "w").string()) == "character special file 0 0\n");
        }) == "");
}

TEST_CASE("directories not listed in a layer inherit their modes from the layers below") {
  const Temporary temporary;
  write_file(temporary / "1.layer",
             Tar().directory("tmp", 01777).directory("gone", 0700).directory("gone/x", 0700).whole());
  write_file(temporary / "2.layer", Tar().directory("dir", 0711).file("gone/.wh..wh..opq").whole());
  write_file(temporary / "3.layer", Tar().file("tmp/a/b", "x").file("dir/c", "x").file("gone/x/y", "x").whole());
  UnpackOptions options;
  CHECK(unpack_layer(temporary / "1.layer", "", temporary / "1", options).implicit_directories == 0);
  options.lower = {temporary / "1"};
  CHECK(unpack_layer(temporary / "2.layer", "", temporary / "2", options).implicit_directories == 1);
  options.lower = {temporary / "2", temporary / "1"};
  CHECK(unpack_layer(temporary / "3.layer", "", temporary / "3", options).implicit_directories == 5);
  CHECK(run("cd " + (temporary / "3").string() + " && stat -c '%n %a' tmp tmp/a dir gone gone/x") ==
        "tmp 1777\ntmp/a 755\ndir 711\ngone 700\ngone/x 755\n");
}

TEST_CASE("a directory that a layer does not list resolves to the target of a lower layer's link of that name") {
  const Temporary temporary;
  write_file(temporary / "1.layer", Tar()
                                        .directory("usr/lib", 0711)
                                        .directory("usr/lib/deep", 0700)
                                        .link("lib", "usr/lib")
                                        .link("abs", "/usr/lib/../lib")
                                        .link("loop", "loop")
                                        .link("out", "../../../nowhere")
                                        .whole());
  write_file(temporary / "2.layer",
             Tar().file("lib/a", "x").file("lib/deep/b", "x").file("abs/c", "x").file("out/d", "x").whole());
  UnpackOptions options;
  unpack_layer(temporary / "1.layer", "", temporary / "1", options);
  options.lower = {temporary / "1"};
  unpack_layer(temporary / "2.layer", "", temporary / "2", options);
  CHECK(run("cd " + (temporary / "2").string() +
            " && readlink lib abs out && stat -c '%n %a' usr/lib usr/lib/deep && " + "find . -type f | sort") ==
        "usr/lib\n/usr/lib/../lib\n../../../nowhere\nusr/lib 711\nusr/lib/deep 700\n"
        "./nowhere/d\n./usr/lib/a\n./usr/lib/c\n./usr/lib/deep/b\n");
  CHECK_FALSE(fs::exists(temporary.path().parent_path() / "nowhere"));
  write_file(temporary / "3.layer", Tar().file("loop/x/a", "x").whole());
  CHECK_THROWS_AS(unpack_layer(temporary / "3.layer", "", temporary / "3", options), Error);
}

TEST_CASE("an already unpacked layer is kept, and leftover drafts are removed") {
  const Temporary temporary;
  write_file(temporary / "x.layer", Tar().file("f", "x").whole());
  unpack_layer(temporary / "x.layer", "", temporary / "x");
  write_file(temporary / "x/mark", "");
  CHECK(unpack_layer(temporary / "x.layer", "", temporary / "x").entries == 1);
  CHECK(fs::exists(temporary / "x/mark"));
  fs::create_directories(temporary / ".unpack-y-abcdef/d");
  remove_unpack_drafts(temporary.path());
  CHECK(run("ls -A " + temporary.path().string()) == "x\nx.layer\n");
}

TEST_CASE("in a user namespace, devices are skipped and owners are mapped") {
  if (!is_root()) return;
  const Temporary temporary;
  REQUIRE(::chmod(temporary.path().c_str(), 0777) == 0);
  write_file(temporary / "x.layer",
             Tar(33, 44).directory("dev").device("dev/null", 1, 3).file("f", "x").file(".wh.gone").whole());
  int ready[2], mapped[2];
  REQUIRE((::pipe(ready) == 0 && ::pipe(mapped) == 0));
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(10);
    if (::unshare(CLONE_NEWUSER) != 0) ::_exit(2);
    if (::write(ready[1], "x", 1) != 1 || ::read(mapped[0], &byte, 1) != 1) ::_exit(3);
    if (::setgid(0) != 0 || ::setuid(0) != 0) ::_exit(4);
    try {
      const Unpacked unpacked = unpack_layer(temporary / "x.layer", "", temporary / "x");
      ::_exit(unpacked.devices_left_out == 1 && unpacked.entries == 4 ? 0 : 5);
    } catch (const Error& error) {
      fmt::print(stderr, "{}\n", error.what());
      ::_exit(6);
    }
  }
  char byte = 0;
  const auto map = [&](const char* file) {
    std::FILE* stream = std::fopen(fmt::format("/proc/{}/{}", child, file).c_str(), "w");
    return stream != nullptr && std::fputs("0 100000 65536\n", stream) >= 0 && std::fclose(stream) == 0;
  };
  ::close(ready[1]);
  const bool can = ::read(ready[0], &byte, 1) == 1;
  if (can) REQUIRE((map("uid_map") && map("gid_map") && ::write(mapped[1], "x", 1) == 1));
  ::close(mapped[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  for (const int fd : {ready[0], mapped[0]}) ::close(fd);
  if (WEXITSTATUS(status) == 2) return;  // the kernel does not allow user namespaces
  REQUIRE(status == 0);
  CHECK(run("cd " + (temporary / "x").string() + " && find . -mindepth 1 -printf '%P %y %U %G\\n' | LC_ALL=C sort") ==
        "dev d 100033 100044\nf f 100033 100044\ngone c 100000 100000\n");
}

namespace {

const std::string kOverlay = "mount -t overlay overlay -o userxattr,";

// Returns whether an overlay can be mounted in that directory: some containers may not.
bool can_mount_overlay(const std::string& at) {
  const std::string mount = kOverlay + "lowerdir=1,upperdir=2,workdir=3 4";
  return std::system(
             ("unshare -m sh -c 'cd " + at + " && mkdir t t/1 t/2 t/3 t/4 && cd t && " + mount + "' 2>/dev/null")
                 .c_str()) == 0;
}

const char* const kChanges = R"(set -e
rm gone; rm -r removed; rm -r replaced; mkdir replaced; echo new > replaced/new
echo more >> changed; chown 33:44 keep/file; chmod 4751 changed; ln -sf /nowhere link
truncate -s 20M sparse; printf x | dd of=sparse bs=1 seek=10000000 conv=notrunc status=none; printf end >> sparse
ln sparse another-name; ln sparse keep/third-name; mkfifo pipe; mknod device c 1 5; chown 1000000:7 pipe
cp /bin/true tool; setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 tool
setfattr -n user.note -v "two words" keep; mkdir -m 2770 -p new/dir; echo > "new/dir/a name with ü and spaces"
head -c 3000000 /dev/urandom > random; touch -d @1000000000 random new/dir; touch -h -d @5 link
mkdir skipped; echo > skipped/x; mkdir -p partly/skipped; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("s")'
)";

}  // namespace

TEST_CASE("unpacking the layer of an overlay's changes restores exactly these changes" * doctest::test_suite("slow")) {
  if (!is_root()) return;
  const Temporary temporary;
  const std::string at = temporary.path().string();
  if (!can_mount_overlay(at)) return;
  remove_tree(temporary / "t");
  write_file(temporary / "base.layer", Tar()
                                           .directory("keep", 0750)
                                           .file("keep/file", "kept")
                                           .directory("replaced")
                                           .file("replaced/old", "x")
                                           .directory("removed/deep")
                                           .file("removed/deep/x")
                                           .file("gone", "x")
                                           .file("changed", "old")
                                           .link("link", "gone")
                                           .whole());
  unpack_layer(temporary / "base.layer", "", temporary / "lower");
  run("cd " + at + " && mkdir upper work merged");
  write_file(temporary / "change.sh", kChanges);
  const auto in_overlay = [&](const std::string& options, const std::string& what) {
    return run("unshare -m sh -ec 'cd " + at + "; " + kOverlay + options + " merged; cd merged; " + what + "'");
  };
  const std::string list =
      "find . -mindepth 1 ! -path \"./*skipped*\" ! -path ./partly ! -type s -printf "
      "\"%p %y %m %U %G %s %l\" \\( -type d -printf \" \" -o -printf \" %n \" \\) -exec stat -c \"%Y %t %T\" {} "
      "\\; -exec getfattr -h -d -m \"^security.capability|^user.[^o]\" -e hex {} \\; | LC_ALL=C sort; find . "
      "-type f ! -path \"./*skipped*\" -exec sha256sum {} + | LC_ALL=C sort";
  const std::string wanted = in_overlay("lowerdir=lower,upperdir=upper,workdir=work", "sh ../change.sh; " + list);
  REQUIRE(wanted.find("third-name") != std::string::npos);
  REQUIRE(wanted.find("removed") == std::string::npos);
  const BlobStore store(temporary / "store");
  LayerWriter writer(store);
  ChangesOptions options;
  options.skip = {"skipped", "partly/skipped", "partly"};
  const std::size_t added = add_overlay_changes(temporary / "upper", writer, options);
  CHECK(added == writer.entries());
  const Layer layer = writer.finish();
  unpack_layer(store.path_of(layer.digest), layer.diff_id, temporary / "second");
  CHECK(in_overlay("lowerdir=second:lower", list) == wanted);
  CHECK(run("stat -c %b " + (temporary / "second/sparse").string()) < "999");
  const std::string names = run("tar -tzf " + store.path_of(layer.digest).string());
  CHECK(names.find("replaced/\nreplaced/.wh..wh..opq\nreplaced/new\n") != std::string::npos);
  CHECK(names.find(".wh.gone\n") != std::string::npos);
  CHECK(names.find(".wh.removed\n") != std::string::npos);
  // Creating a layer from the unpacked directory yields the same layer.
  LayerWriter again(store);
  add_overlay_changes(temporary / "second", again);
  CHECK(again.finish().digest == layer.digest);
}

TEST_CASE("device nodes are created when root unpacks a layer") {
  if (!is_root()) return;
  CHECK(why(Tar().directory("dev").device("dev/null", 1, 3).whole(), [](const fs::path& root) {
          CHECK(run("stat -c '%F %t %T' " + (root / "dev/null").string()) == "character special file 1 3\n");
        }) == "");
}

}  // namespace image_unpack_test
