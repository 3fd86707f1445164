#include "image/layer/unpack.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <set>

#include "adaptdl/error.h"
#include "base/socket.h"
#include "image/base/digest.h"
#include "image/layer/layer_writer.h"
#include "image/sandbox/overlay_changes.h"
#include "image_tar.h"
#include "image_temporary.h"

namespace image_unpack_test {

using namespace adaptdl;
using namespace adaptdl::image;
namespace fs = std::filesystem;

namespace {

// Lists everything in a directory except layers: paths, modes, times and contents.
std::string listing(const fs::path& directory) {
  std::set<std::string> lines;
  std::error_code error;
  fs::recursive_directory_iterator each(directory, error);
  for (; !error && each != fs::recursive_directory_iterator(); each.increment(error)) {
    const fs::path& path = each->path();
    if (path.extension() == ".layer") continue;
    struct stat info {};
    REQUIRE(::lstat(path.c_str(), &info) == 0);
    std::string line = fmt::format("{} {:o} ", path.lexically_relative(directory).string(), info.st_mode);
    if (S_ISLNK(info.st_mode)) line += fs::read_symlink(path).string();
    if (S_ISREG(info.st_mode)) line += fmt::format("{} {}", info.st_mtim.tv_sec, read_file(path));
    lines.insert(line + '\n');
  }
  CHECK(!error);
  return fmt::format("{}", fmt::join(lines, ""));
}

// Returns the error of unpacking the layer, or "". Checks that nothing outside of the root changes.
std::string why(const std::string& layer, const std::function<void(const fs::path&)>& check = {},
                UnpackOptions options = {}, const std::string& diff_id = "") {
  const Temporary temporary;
  fs::create_directory(temporary / "outside");
  write_file(temporary / "outside/file", "as it was");
  write_file(temporary / "evil.layer", layer);
  const std::string before = listing(temporary.path());
  std::string error;
  try {
    unpack_layer(temporary / "evil.layer", diff_id, temporary / "root", options);
    if (check) check(temporary / "root");
    remove_tree(temporary / "root");
  } catch (const Error& caught) {
    error = caught.what();
    CHECK(error.starts_with(diff_id.empty() ? "layer evil.layer: " : "layer " + diff_id + ": "));
    CHECK(error.find('\n') == std::string::npos);
    error = error.substr(error.find(": ", diff_id.empty() ? 0 : 14) + 2);
  }
  CHECK(listing(temporary.path()) == before);
  CHECK_FALSE(fs::exists("/evil"));
  return error;
}

std::string text_of(const fs::path& file) { return read_file(file); }

// If the user is not root, enters a user namespace that maps only this user, as root, because the files in layers
// belong to root. Returns whether the user was root.
bool begin_as_root() {
  const uid_t uid = ::getuid();
  const gid_t gid = ::getgid();
  if (uid == 0) return true;
  if (::unshare(CLONE_NEWUSER) != 0) return false;
  const std::pair<const char*, std::string> lines[] = {
      {"setgroups", "deny"}, {"uid_map", fmt::format("0 {} 1", uid)}, {"gid_map", fmt::format("0 {} 1", gid)}};
  for (const auto& [file, line] : lines)
    if (std::FILE* stream = std::fopen(fmt::format("/proc/self/{}", file).c_str(), "w")) {
      std::fputs(line.c_str(), stream);
      std::fclose(stream);
    }
  return false;
}
const bool kWasRoot = begin_as_root();
bool is_root() { return kWasRoot; }

}  // namespace

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
  CHECK(why(Tar().link("l", "../outside").file("l/file", "x").whole()) ==
        "'l' contains entries but is not a directory");
  CHECK(why(Tar().link("l", "/").hard_link("h", "l/outside/file").whole()) ==
        "'h' is a hard link to 'l/outside/file', which is not an earlier file");
  CHECK(why(Tar().link("file", "../outside/file").file("file", "inside").whole(), has("file")) == "");
  CHECK(why(Tar().link("l", "../outside/file").hard_link("h", "l").file("h", "inside").whole(), has("h")) == "");
  CHECK(why(Tar().link("d", "../outside").directory("d", 0700).file("d/file", "inside").whole(), has("d/file")) == "");
  CHECK(why(Tar().file("x", "1").directory("x").file("x/y").link("x", "a").file("x", "inside").whole(), has("x")) ==
        "");
  CHECK(why(Tar().file("x", "inside").hard_link("x", "x").whole(), has("x")) == "");
  CHECK(why(Tar().link("l", "l").file("l/x", "").whole()).find("symbolic links") != std::string::npos);
}

TEST_CASE("invalid hard links, files used as directories and overlong names are rejected") {
  CHECK(why(Tar().hard_link("h", "nothing").whole()) ==
        "'h' is a hard link to 'nothing', which is not an earlier file");
  CHECK(why(Tar().directory("d").hard_link("h", "d").whole()) ==
        "'h' is a hard link to 'd', which is not an earlier file");
  CHECK(why(Tar().directory("d").hard_link("h", "").whole()) ==
        "'h' is a hard link to '', which is not an earlier file");
  CHECK(why(Tar().file("f").file("f/x").whole()) == "'f' contains entries but is not a directory");
  CHECK(why(Tar().file(".").whole()) == "the root entry is not a directory");
  CHECK(why(Tar().link("l", "").whole()) == "the link 'l' has an empty target");
  CHECK(why(Tar().file(std::string(256, 'n')).whole()).find("File name too long") != std::string::npos);
  std::string deep = "d";
  for (int i = 0; i < 255; ++i) deep += "/d";
  CHECK(why(Tar().directory(deep).whole()) == "");
  CHECK(why(Tar().directory(deep + "/d").whole()).find("is more than 256 directories deep") != std::string::npos);
  CHECK(why(Tar().file(std::string("a\0b", 3) + std::string(100, 'x')).whole()).find("contains a zero byte") !=
        std::string::npos);
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

TEST_CASE("whiteouts and opaque markers are converted to overlayfs's, and invalid ones are rejected") {
  CHECK(why(Tar().file(".wh.gone").file("dir/.wh.gone").file("dir/.wh..wh..opq").whole(), [](const fs::path& root) {
          CHECK(run("cd " + root.string() + " && stat -c '%F %t %T' gone dir/gone") ==
                "character special file 0 0\ncharacter special file 0 0\n");
          CHECK(run("getfattr --only-values -n user.overlay.opaque " + (root / "dir").string() + " 2>/dev/null || true")
                    .find('y') != std::string::npos);
        }) == "");
  // Whiteouts do not remove entries of their own layer, whatever the order, but hide those of the layers below.
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

// Prevents or allows the removal of entries. Returns false if the file system or the user does not permit that.
bool make_immutable(const fs::path& directory, bool immutable) {
  const net::Fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
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
  CHECK(error.find("cannot remove link: ") == 0);
  CHECK(fs::status(outside).permissions() == (fs::perms::owner_read | fs::perms::owner_exec));
}

TEST_CASE("a truncated layer is rejected, and a damaged one leaves nothing behind") {
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

TEST_CASE("directories not listed in a layer inherit their modes from the layers below") {
  const Temporary temporary;
  write_file(temporary / "1.layer",
             Tar().directory("tmp", 01777).directory("gone", 0700).directory("gone/x", 0700).whole());
  write_file(temporary / "2.layer", Tar().directory("dir", 0711).file("gone/.wh..wh..opq").whole());
  write_file(temporary / "3.layer", Tar().file("tmp/a/b", "x").file("dir/c", "x").file("gone/x/y", "x").whole());
  UnpackOptions options;
  CHECK(unpack_layer(temporary / "1.layer", "", temporary / "1", options).unsaid_directories == 0);
  options.lower = {temporary / "1"};
  CHECK(unpack_layer(temporary / "2.layer", "", temporary / "2", options).unsaid_directories == 1);
  options.lower = {temporary / "2", temporary / "1"};
  CHECK(unpack_layer(temporary / "3.layer", "", temporary / "3", options).unsaid_directories == 5);
  CHECK(run("cd " + (temporary / "3").string() + " && stat -c '%n %a' tmp tmp/a dir gone gone/x") ==
        "tmp 1777\ntmp/a 755\ndir 711\ngone 700\ngone/x 755\n");
}

TEST_CASE("an unlisted directory that is a link in a lower layer is resolved through it") {
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

TEST_CASE("a very deep tree is removed, and the targets of its links are kept") {
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

TEST_CASE("changes in an overlay are restored exactly when their layer is unpacked") {
  if (!is_root()) return;
  const Temporary temporary;
  const std::string at = temporary.path().string();
  const std::string overlay = "mount -t overlay overlay -o userxattr,";
  if (std::system(("unshare -m sh -c 'cd " + at + " && mkdir t t/1 t/2 t/3 t/4 && cd t && " + overlay +
                   "lowerdir=1,upperdir=2,workdir=3 4' 2>/dev/null")
                      .c_str()) != 0)
    return;  // a container may not mount overlays
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
  write_file(temporary / "change.sh", R"(set -e
rm gone; rm -r removed; rm -r replaced; mkdir replaced; echo new > replaced/new
echo more >> changed; chown 33:44 keep/file; chmod 4751 changed; ln -sf /nowhere link
truncate -s 20M sparse; printf x | dd of=sparse bs=1 seek=10000000 conv=notrunc status=none; printf end >> sparse
ln sparse another-name; ln sparse keep/third-name; mkfifo pipe; mknod device c 1 5; chown 1000000:7 pipe
cp /bin/true tool; setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 tool
setfattr -n user.note -v "two words" keep; mkdir -m 2770 -p new/dir; echo > "new/dir/a name with ü and spaces"
head -c 3000000 /dev/urandom > random; touch -d @1000000000 random new/dir; touch -h -d @5 link
mkdir skipped; echo > skipped/x; mkdir -p partly/skipped; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("s")'
)");
  const auto in_overlay = [&](const std::string& options, const std::string& what) {
    return run("unshare -m sh -ec 'cd " + at + "; " + overlay + options + " merged; cd merged; " + what + "'");
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
