#include "image/layer/layer_reader.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "http/http.h"
#include "image_temporary.h"

namespace image_layer_reader_test {

using namespace adaptdl;
using namespace adaptdl::image;
namespace fs = std::filesystem;

namespace {

std::map<std::string, std::pair<Entry, std::string>> read_layer(const fs::path& file) {
  LayerReader reader(file, "archive");
  std::map<std::string, std::pair<Entry, std::string>> entries;
  for (Entry entry; reader.next(entry);) {
    std::string content;
    char buffer[4096];
    while (const std::size_t count = reader.read(buffer, sizeof buffer)) content.append(buffer, count);
    CHECK(content.size() == entry.size);
    entries[entry.path] = {entry, content};
  }
  reader.diff_id();
  return entries;
}

// Creates a directory `in` with files of all types that the archive formats represent differently.
void make_tree(const Temporary& temporary) {
  const std::string long_name(180, 'n');
  run("cd " + temporary.path().string() +
      " && mkdir -p in/dir && cd in && printf hello > dir/file && ln dir/file hard && ln -s dir/file soft && mkfifo "
      "pipe"
      " && truncate -s 3000000 sparse && for i in 100000 200000 300000 900000 1500000 2999990; do printf 0123456789 |"
      " dd of=sparse bs=1 seek=$i conv=notrunc status=none; done && truncate -s 500000 hole && touch -d @1234567890.5 "
      "dir/file && touch -d @1000000000 . dir sparse hole && printf 'ü' > 'name ü'");
  write_file(temporary / "in" / long_name, "long");
}

void check_tree(const fs::path& archive, const Temporary& temporary, bool long_names) {
  const auto entries = read_layer(archive);
  CAPTURE(archive.string());
  CHECK(entries.contains("dir"));
  REQUIRE(entries.contains("dir/file"));
  REQUIRE(entries.contains("hard"));
  CHECK(entries.at("dir").first.type == Entry::Type::kDirectory);
  CHECK(entries.at("dir").first.mtime == 1'000'000'000);
  const bool first = entries.at("hard").first.type == Entry::Type::kHardLink;
  const auto& [link, file] = first ? std::pair("hard", "dir/file") : std::pair("dir/file", "hard");
  CHECK(entries.at(file).second == "hello");
  CHECK(entries.at(file).first.mtime == 1'234'567'890);
  CHECK(entries.at(link).first.link == file);
  CHECK(entries.at("soft").first.link == "dir/file");
  CHECK(entries.at("sparse").second == read_file(temporary / "in/sparse"));
  CHECK(entries.at("hole").second == std::string(500'000, '\0'));
  CHECK(entries.at("name ü").second == "ü");
  if (long_names) CHECK(entries.at(std::string(180, 'n')).second == "long");
  if (long_names) CHECK(entries.at("pipe").first.type == Entry::Type::kFifo);
}

}  // namespace

TEST_CASE("all formats of GNU tar are read, including every kind of sparse file") {
  const Temporary temporary;
  make_tree(temporary);
  const std::string at = "cd " + temporary.path().string() + "/in && tar -c ";
  const std::string to = " -f ../x.tar .";
  for (const std::string format : {"--format=gnu", "--format=gnu -S", "--format=oldgnu", "--format=oldgnu -S",
                                   "--format=posix", "--format=posix -S --sparse-version=0.0",
                                   "--format=posix -S --sparse-version=0.1", "--format=posix -S --sparse-version=1.0",
                                   "--format=ustar --exclude=nnnn*", "--format=v7 --exclude=nnnn* --exclude=pipe"}) {
    CAPTURE(format);
    run(at + format + to);
    check_tree(temporary / "x.tar", temporary, format.find("nnnn") == std::string::npos);
    CHECK(is_archive(temporary / "x.tar"));
  }
}

TEST_CASE("xattrs, large owner IDs and times before 1970 are read from GNU tar archives") {
  const Temporary temporary;
  write_file(temporary / "f", "x");
  if (std::system(("setfattr -n user.note -v hello " + (temporary / "f").string() + " 2>/dev/null").c_str()) != 0)
    return;
  run("cd " + temporary.path().string() +
      " && touch -d @-1.5 f && tar -c --format=posix --xattrs --owner=:3000000000 " + "--group=:2500000 -f x.tar f");
  const Entry entry = read_layer(temporary / "x.tar").at("f").first;
  CHECK(entry.xattrs.at("user.note") == "hello");
  CHECK(entry.uid == 3'000'000'000);
  CHECK(entry.gid == 2'500'000);
  CHECK(entry.mtime == -2);
  run("cd " + temporary.path().string() + " && tar -c --format=gnu --owner=:3000000000 --group=:2500000 -f x.tar f");
  const Entry gnu = read_layer(temporary / "x.tar").at("f").first;
  CHECK(gnu.uid == 3'000'000'000);
  CHECK(gnu.gid == 2'500'000);
  CHECK(gnu.mtime == -2);
}

TEST_CASE("the owner ID 4294967295 is rejected, and a later global header replaces an earlier one") {
  const Temporary temporary;
  const std::string archive = (temporary / "x.tar").string();
  const auto make = [&](const std::string& headers) {
    run("python3 - <<'END'\n"
        "import io, tarfile\n"
        "def member(name, kind, records):\n"
        "    member = tarfile.TarInfo(name)\n"
        "    member.type = kind\n"
        "    data = b''.join(b'%d %s\\n' % (len(record) + 4, record) for record in records)\n"
        "    member.size = len(data)\n"
        "    tar.addfile(member, io.BytesIO(data))\n"
        "with tarfile.open('" +
        archive + "', 'w', format=tarfile.USTAR_FORMAT) as tar:\n" + headers +
        "    tar.addfile(tarfile.TarInfo('f'))\n"
        "END\n");
    return read_layer(archive).at("f").first;
  };
  CHECK(make("    member('g', b'g', [b'uid=11'])\n    member('g', b'g', [b'uid=12'])\n").uid == 12);
  CHECK(make("    member('g', b'g', [b'uid=11'])\n    member('x', b'x', [b'uid=13'])\n    member('g', b'g', "
             "[b'uid=12'])\n")
            .uid == 13);
  CHECK(make("    member('x', b'x', [b'uid=4294967294'])\n").uid == 4'294'967'294);
  for (const char* id : {"uid", "gid"})
    CHECK_THROWS_AS(make(fmt::format("    member('x', b'x', [b'{}=4294967295'])\n", id)), Error);
}

TEST_CASE("names and link targets keep their bytes, and the size of a hard link is ignored") {
  const Temporary temporary;
  run("python3 - <<'END'\n"
      "import io, tarfile\n"
      "with tarfile.open('" +
      (temporary / "x.tar").string() +
      "', 'w', format=tarfile.USTAR_FORMAT) as tar:\n"
      "    def add(name, kind, data=b'', size=0):\n"
      "        member = tarfile.TarInfo(name)\n"
      "        member.type, member.size = kind, size or len(data)\n"
      "        tar.addfile(member, io.BytesIO(data) if data else None)\n"
      "    add('x', b'x', b'12 path=e\\xcc\\x81\\n')\n"  // an é in two code points
      "    add('file', b'0', b'content')\n"
      "    add('x', b'x', b'16 linkpath=\\xc3\\xa9\\xff\\n')\n"
      "    add('link', b'2')\n"
      "    add('x', b'x', b'16 linkpath=e\\xcc\\x81\\n')\n"
      "    add('hard', b'1', size=512)\n"
      "    add('next', b'0', b'more')\n"
      "END\n");
  const auto entries = read_layer(temporary / "x.tar");
  CHECK(entries.size() == 4);
  CHECK(entries.at("e\xcc\x81").second == "content");
  CHECK(entries.at("link").first.link == "\xc3\xa9\xff");
  CHECK(entries.at("hard").first.link == "e\xcc\x81");
  CHECK(entries.at("next").second == "more");
}

TEST_CASE("archives in one or several compressed streams are read, and other files are rejected" *
          doctest::test_suite("slow")) {
  const Temporary temporary;
  make_tree(temporary);
  const std::string at = "cd " + temporary.path().string() + " && ";
  run(at + "tar -cf x.tar -C in .");
  for (const std::string tool : {"gzip", "bzip2", "xz", "zstd -q", "cat"}) {
    CAPTURE(tool);
    run(at + tool + " < x.tar > x.packed");
    check_tree(temporary / "x.packed", temporary, true);
    CHECK(is_archive(temporary / "x.packed"));
    run(at + "(head -c 5000 x.tar | " + tool + "; tail -c +5001 x.tar | " + tool + ") > x.parts");
    check_tree(temporary / "x.parts", temporary, true);
    if (tool == "cat") continue;
    run(at + "head -c $(($(stat -c %s x.packed) - 9)) x.packed > x.cut");
    CHECK_GOLDEN(::testing::error_of([&] { read_layer(temporary / "x.cut"); }));
    for (const std::size_t from_end : {2, 6}) {  // in the checksum or length that ends a stream
      std::string damaged = read_file(temporary / "x.packed");
      damaged[damaged.size() - from_end] ^= 1;
      write_file(temporary / "x.damaged", damaged);
      CHECK_THROWS_AS(read_layer(temporary / "x.damaged"), Error);
    }
    run(at + "(cat x.packed; echo more) > x.more");
    CHECK_THROWS_AS(read_layer(temporary / "x.more"), Error);
    run(at + "(cat x.packed; head -c 1000 /dev/zero) > x.padded");
    check_tree(temporary / "x.padded", temporary, true);
    run(at + "echo no archive | " + tool + " > x.text");
    CHECK_FALSE(is_archive(temporary / "x.text"));
  }
  run(at + "xz --lzma2=preset=0,dict=192MiB < x.tar > x.xz");
  CHECK_GOLDEN(::testing::error_of([&] { read_layer(temporary / "x.xz"); }));
  for (const std::string content : {"", "text", "\x1f\x8b", "PK\3\4"}) {
    write_file(temporary / "x.none", content);
    CHECK_FALSE(is_archive(temporary / "x.none"));
  }
  CHECK_FALSE(is_archive(temporary / "in"));
  CHECK_FALSE(is_archive(temporary / "nothing"));
  CHECK_FALSE(is_archive(temporary / "in/pipe"));
  CHECK_GOLDEN(::testing::error_of([&] { read_layer(temporary / "nothing"); }));
  CHECK_GOLDEN(::testing::error_of([&] { read_layer(temporary / "in/pipe"); }));
}

TEST_CASE("archives written by libarchive and Python are read") {
  const Temporary temporary;
  make_tree(temporary);
  run("cd " + temporary.path().string() +
      " && python3 -c 'import tarfile\n"
      "for name, form in ((\"gnu\", tarfile.GNU_FORMAT), (\"pax\", tarfile.PAX_FORMAT)):\n"
      "  with tarfile.open(name + \".tar\", \"w\", format=form) as t: t.add(\"in\", \".\")'");
  check_tree(temporary / "gnu.tar", temporary, true);
  check_tree(temporary / "pax.tar", temporary, true);
  if (std::system("bsdtar --version >/dev/null 2>&1") != 0) return;
  for (const std::string format : {"pax", "gnutar", "ustar --exclude=nnnn*"}) {
    CAPTURE(format);
    run("cd " + temporary.path().string() + "/in && LC_ALL=C.UTF-8 bsdtar -c --format=" + format + " -f ../x.tar .");
    check_tree(temporary / "x.tar", temporary, format.find("nnnn") == std::string::npos);
  }
}

TEST_CASE("invalid sparse maps and invalid headers of tar archives are rejected") {
  const Temporary temporary;
  const auto why = [&](const std::string& bytes) {
    write_file(temporary / "x.tar", bytes);
    try {
      read_layer(temporary / "x.tar");
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  run("cd " + temporary.path().string() +
      " && truncate -s 100000 s && printf x | dd of=s bs=1 seek=70000 conv=notrunc "
      "status=none && tar -c -S --format=posix --sparse-version=0.1 -f good.tar s");
  const std::string good = read_file(temporary / "good.tar");
  const std::string map = "GNU.sparse.map=";
  const std::size_t at = good.find(map) + map.size();
  REQUIRE(at < good.size());
  REQUIRE(why(good) == "");
  std::string bad = good;
  bad[at] = '9';  // the piece now ends after the start of the next piece
  CHECK_GOLDEN(why(bad));
  bad[at] = 'x';
  CHECK_GOLDEN(why(bad));
  bad = good;
  bad[512] = 'x';
  CHECK(why(bad) != "");
  bad = good;
  bad[0] ^= 1;
  CHECK_GOLDEN(why(bad));
  CHECK_GOLDEN(why(good.substr(0, 700)));
  CHECK_GOLDEN(why(std::string(512, '\0') + good));
}

TEST_CASE("a stop request interrupts the reading of a layer") {
  const Temporary temporary;
  write_file(temporary / "x", std::string(100'000, '\0'));
  std::stop_source stop;
  LayerReader reader(temporary / "x", "archive", {}, stop.get_token());
  stop.request_stop();
  Entry entry;
  CHECK_THROWS_AS(reader.next(entry), http::Stopped);
}

TEST_CASE("reading a truncated archive fails after its complete entries, and a reader need not read all entries" *
          doctest::test_suite("slow")) {
  const Temporary temporary;
  run("cd " + temporary.path().string() +
      " && head -c 3000000 /dev/urandom > random && tar -czf x.tar.gz --format=ustar random && tar -czf two.tar.gz "
      "random "
      "x.tar.gz && head -c 3000000 two.tar.gz > cut.tar.gz && head -c 2000000 x.tar.gz > early.tar.gz");
  Entry entry;
  {
    LayerReader reader(temporary / "two.tar.gz", "archive");
    REQUIRE(reader.next(entry));
  }
  LayerReader cut(temporary / "cut.tar.gz", "archive");
  REQUIRE(cut.next(entry));
  CHECK_GOLDEN(::testing::error_of([&] { cut.next(entry); }));
  CHECK(read_layer(temporary / "two.tar.gz").at("random").second == read_file(temporary / "random"));
  CHECK_GOLDEN(::testing::error_of([&] { read_layer(temporary / "early.tar.gz"); }));
}

}  // namespace image_layer_reader_test
