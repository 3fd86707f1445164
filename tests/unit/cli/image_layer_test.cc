#include "image/layer/layer_writer.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "http/http.h"
#include "image/layer/layer_reader.h"
#include "image_temporary.h"

namespace image_layer_test {

using namespace adaptdl;
using namespace adaptdl::image;
namespace fs = std::filesystem;

namespace {

Content text_content(std::string text) {
  return [text = std::move(text), at = std::size_t{0}](char* data, std::size_t size) mutable {
    const std::size_t count = std::min(size, text.size() - at);
    std::memcpy(data, text.data() + at, count);
    at += count;
    return count;
  };
}

Entry file(const std::string& path, std::size_t size) {
  Entry entry;
  entry.path = path;
  entry.size = size;
  entry.mtime = 1'600'000'000;
  return entry;
}

Entry directory(const std::string& path) {
  Entry entry = file(path, 0);
  entry.type = Entry::Type::kDirectory;
  entry.mode = 0755;
  return entry;
}

struct Item {
  Entry entry;
  std::string content;
  bool operator==(const Item&) const = default;
};

std::vector<Item> items_of(const fs::path& blob, const LayerLimits& limits = {}) {
  LayerReader reader(blob, "layer", limits);
  std::vector<Item> items;
  for (Item item; reader.next(item.entry); items.push_back(item)) {
    item.content.clear();
    char buffer[1000];
    while (const std::size_t count = reader.read(buffer, sizeof buffer)) item.content.append(buffer, count);
  }
  return items;
}

// Returns an entry of each type, and entries with values that do not fit into a ustar header.
std::vector<Item> all_kinds() {
  std::vector<Item> items;
  const std::string long_name = std::string(120, 'd') + "/" + std::string(200, 'f') + " ü";
  items.push_back({directory("dir"), ""});
  items.push_back({directory(std::string(120, 'd')), ""});
  items.push_back({file("dir/file", 5), "hello"});
  items.push_back({file(long_name, 1), "x"});
  items.push_back({file("empty", 0), ""});
  items.push_back({file("blocks", 1024), std::string(1024, 'b')});
  Entry special = file("dir/special", 3);
  special.mode = 06755;
  special.uid = 3'000'000'000;
  special.gid = 2'097'152;
  special.mtime = -5;
  special.xattrs = {{"security.capability", std::string("\1\0\0\2\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20)},
                    {"user.note", "a=b\nc"}};
  items.push_back({special, "abc"});
  Entry later = file("later", 0);
  later.mtime = std::int64_t{1} << 40;
  items.push_back({later, ""});
  Entry link = file("link", 0);
  link.type = Entry::Type::kSymlink;
  link.mode = 0777;
  link.link = "../" + std::string(150, 't') + "/x";
  items.push_back({link, ""});
  link.path = "hard";
  link.type = Entry::Type::kHardLink;
  link.link = long_name;
  items.push_back({link, ""});
  Entry device = file("null", 0);
  device.type = Entry::Type::kCharacterDevice;
  device.device_major = 1;
  device.device_minor = 3;
  items.push_back({device, ""});
  device.path = "disk";
  device.type = Entry::Type::kBlockDevice;
  device.device_major = 4095;
  device.device_minor = 1'048'575;
  items.push_back({device, ""});
  Entry pipe = file("pipe", 0);
  pipe.type = Entry::Type::kFifo;
  items.push_back({pipe, ""});
  return items;
}

Layer write(const BlobStore& store, const std::vector<Item>& items, const LayerOptions& options = {}) {
  LayerWriter writer(store, options);
  for (const Item& item : items) writer.add(item.entry, text_content(item.content));
  return writer.finish();
}

std::string noise(std::size_t size) {
  std::mt19937 random(7);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = "abcdefgh \n"[random() % 10];
  return bytes;
}

std::size_t files_in(const fs::path& directory) {
  std::size_t count = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) count += entry.is_regular_file();
  return count;
}

}  // namespace

TEST_CASE("entries of all types, with long names, extreme values and xattrs, are read back unchanged") {
  const Temporary temporary;
  const BlobStore store(temporary / "store");
  for (const Compression compression : {Compression::kGzip, Compression::kZstd, Compression::kNone}) {
    LayerOptions options;
    options.compression = compression;
    const Layer layer = write(store, all_kinds(), options);
    CHECK(items_of(store.path_of(layer.digest)) == all_kinds());
    CHECK(layer.entries == all_kinds().size());
    CHECK(layer.size == fs::file_size(store.path_of(layer.digest)));
    CHECK(layer.digest == sha256(read_file(store.path_of(layer.digest))));
    LayerReader reader(store.path_of(layer.digest), "layer");
    for (Entry entry; reader.next(entry);) continue;
    CHECK(reader.diff_id() == layer.diff_id);
    CHECK(reader.tar_bytes() == layer.tar_bytes);
  }
}

TEST_CASE("GNU tar and Python list a written layer correctly") {
  const Temporary temporary;
  const BlobStore store(temporary / "store");
  const Layer layer = write(store, all_kinds());
  CHECK(layer.media_type == "application/vnd.oci.image.layer.v1.tar+gzip");
  const std::string blob = store.path_of(layer.digest).string();
  run("gzip -t < " + blob);
  CHECK(sha256(run("gzip -dc " + blob)) == layer.diff_id);
  const std::string listed =
      run("tar -tzvf " + blob + " --numeric-owner --full-time --utc --quoting-style=literal | tr -s ' '");
  const std::string d(120, 'd'), f(200, 'f');
  for (const std::string& line :
       {std::string("drwxr-xr-x 0/0 0 2020-09-13 12:26:40 dir/\n"),
        std::string("-rwsr-sr-x 3000000000/2097152 3 1969-12-31 23:59:55 dir/special\n"),
        "-rw-r--r-- 0/0 1 2020-09-13 12:26:40 " + d + "/" + f + " ü\n", "link -> ../" + std::string(150, 't') + "/x\n",
        "hard link to " + d + "/" + f + " ü\n", std::string("crw-r--r-- 0/0 1,3 2020-09-13 12:26:40 null\n"),
        std::string("prw-r--r-- 0/0 0 2020-09-13 12:26:40 pipe\n")}) {
    CAPTURE(listed);
    CHECK(listed.find(line) != std::string::npos);
  }
  CHECK(run("python3 -c 'import sys, tarfile\n"
            "t = tarfile.open(sys.argv[1])\n"
            "print(len(t.getmembers()), t.getmember(\"dir/special\").pax_headers[\"SCHILY.xattr.user.note\"],"
            "t.getmember(\"later\").mtime, t.extractfile(\"dir/special\").read())' " +
            blob) == "13 a=b\nc 1099511627776.0 b'abc'\n");
}

TEST_CASE("GNU tar extracts a written layer") {
  const Temporary temporary;
  const BlobStore store(temporary / "store");
  std::vector<Item> items = all_kinds();
  std::erase_if(items, [](const Item& item) {
    return item.entry.uid != 0 || item.entry.mtime < 0 || item.entry.type == Entry::Type::kCharacterDevice ||
           item.entry.type == Entry::Type::kBlockDevice;
  });
  const Layer layer = write(store, items);
  fs::create_directory(temporary / "there");
  const std::string there = (temporary / "there").string();
  run("tar -xzf " + store.path_of(layer.digest).string() + " --no-same-owner -p -C " + there);
  CHECK(read_file(temporary / "there/hard") == "x");
  CHECK(read_file(temporary / "there/dir/file") == "hello");
  CHECK(run("cd " + there + " && find . -mindepth 1 | wc -l") == fmt::format("{}\n", items.size()));
  CHECK(run("cd " + there + " && stat -c %Y dir/file blocks pipe | sort -u") == "1600000000\n");
}

TEST_CASE("a layer's bytes do not depend on the thread count or read size" * doctest::test_suite("slow")) {
  const Temporary temporary;
  const BlobStore store(temporary / "store");
  const std::string content = noise(9'000'000);
  for (const Compression compression : {Compression::kGzip, Compression::kZstd}) {
    std::set<std::string> digests, diff_ids;
    for (const unsigned threads : {1u, 2u, 7u}) {
      LayerOptions options;
      options.compression = compression;
      options.threads = threads;
      LayerWriter writer(store, options);
      writer.add(directory("d"));
      std::size_t at = 0;
      writer.add(file("d/large", content.size()), [&](char* data, std::size_t size) {
        const std::size_t count = std::min({size, content.size() - at, std::size_t{1000} * threads});
        std::memcpy(data, content.data() + at, count);
        at += count;
        return count;
      });
      const Layer layer = writer.finish();
      digests.insert(layer.digest);
      diff_ids.insert(layer.diff_id);
      CHECK(items_of(store.path_of(layer.digest)).at(1).content == content);
    }
    CHECK(digests.size() == 1);
    CHECK(diff_ids.size() == 1);
  }
}

TEST_CASE("the zstd command decompresses a zstd layer") {
  const Temporary temporary;
  const BlobStore store(temporary / "store");
  LayerOptions options;
  options.compression = Compression::kZstd;
  const Layer layer = write(store, {{file("a", 5'000'000), noise(5'000'000)}}, options);
  CHECK(layer.media_type == "application/vnd.oci.image.layer.v1.tar+zstd");
  CHECK(run("zstd -dc " + store.path_of(layer.digest).string() + " | sha256sum").substr(0, 64) ==
        hex_of(layer.diff_id));
}

TEST_CASE("file times after latest_time are clamped to latest_time, and earlier ones are kept") {
  const Temporary temporary;
  const BlobStore store(temporary / "store");
  LayerOptions options;
  options.latest_time = 1'000'000'000;
  Entry old = file("old", 0);
  old.mtime = 5;
  const Layer layer = write(store, {{file("new", 0), ""}, {old, ""}}, options);
  const std::vector<Item> items = items_of(store.path_of(layer.digest));
  CHECK(items.at(0).entry.mtime == 1'000'000'000);
  CHECK(items.at(1).entry.mtime == 5);
}

TEST_CASE("whiteouts and opaque markers have their OCI names, which other entries cannot use") {
  const Temporary temporary;
  const BlobStore store(temporary / "store");
  LayerWriter writer(store);
  writer.whiteout("gone");
  writer.whiteout("dir/gone");
  writer.opaque("dir");
  writer.opaque("");
  CHECK(writer.entries() == 4);
  CHECK_GOLDEN(::testing::error_of([&] { writer.add(file("dir/.wh.x", 0)); }));
  CHECK_THROWS_AS(writer.add(file(".wh.x", 0)), Error);
  CHECK_THROWS_AS(writer.add(file(".wh.x/y", 0)), Error);
  writer.add(file("a.wh.x", 0));
  const Layer layer = writer.finish();
  CHECK(run("tar -tzf " + store.path_of(layer.digest).string()) ==
        ".wh.gone\ndir/.wh.gone\ndir/.wh..wh..opq\n.wh..wh..opq\na.wh.x\n");
}

TEST_CASE("a file that changes size while being read causes an error and leaves no blob") {
  const Temporary temporary;
  const BlobStore store(temporary / "store");
  {
    LayerWriter writer(store);
    CHECK_GOLDEN(::testing::error_of([&] { writer.add(file("f", 5), text_content("abc")); }));
  }
  {
    LayerWriter writer(store);
    CHECK_GOLDEN(::testing::error_of([&] { writer.add(file("f", 2), text_content("abc")); }));
  }
  {
    std::stop_source stop;
    LayerWriter writer(store, {}, stop.get_token());
    writer.add(file("f", 3'000'000), text_content(noise(3'000'000)));
    stop.request_stop();
    CHECK_THROWS_AS(writer.add(file("g", 0)), http::Stopped);
  }
  CHECK(files_in(temporary / "store") == 0);
  Entry odd = file("f", 0);
  odd.xattrs["user.a=b"] = "c";
  LayerWriter writer(store);
  CHECK_GOLDEN(::testing::error_of([&] { writer.add(odd); }));
  LayerOptions options;
  options.level = 13;
  CHECK_GOLDEN(::testing::error_of([&] { LayerWriter(store, options); }));
}

TEST_CASE("writing a layer to a full disk fails with an error and leaves no files" * doctest::test_suite("slow")) {
  const Temporary temporary;
  if (::geteuid() != 0) return;
  fs::create_directory(temporary / "small");
  run("mount -t tmpfs -o size=1m none " + (temporary / "small").string());
  {
    const BlobStore store(temporary / "small");
    LayerOptions options;
    options.compression = Compression::kNone;
    LayerWriter writer(store, options);
    const std::string content = noise(20'000'000);
    std::string why;
    try {
      writer.add(file("f", content.size()), text_content(content));
      writer.finish();
    } catch (const Error& error) {
      why = error.what();
    }
    CHECK(why == "cannot write to '" + (temporary / "small/blobs").string() + "': No space left on device");
  }
  CHECK(files_in(temporary / "small") == 0);
  run("umount " + (temporary / "small").string());
}

namespace {

// Checks that writing 150 MB of a repeated pattern takes less than 130 MB of memory.
void check_memory(const std::string& pattern) {
  const Temporary temporary;
  const BlobStore store(temporary / "store");
  const auto resident = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss >> 10;
  };
  for (const Compression compression : {Compression::kGzip, Compression::kZstd}) {
    const long before = resident();
    LayerOptions options;
    options.compression = compression;
    options.threads = 64;
    LayerWriter writer(store, options);
    for (int i = 0; i < 15; ++i) {
      std::size_t left = 10'000'000;
      writer.add(file(fmt::format("f{}", i), left), [&](char* data, std::size_t size) {
        size = std::min({size, left, pattern.size()});
        left -= size;
        std::memcpy(data, pattern.data(), size);
        return size;
      });
    }
    CHECK(writer.finish().tar_bytes > 150'000'000);
    CHECK(resident() - before < 130);
  }
}

}  // namespace

TEST_CASE("writing a layer of compressible data uses a bounded amount of memory, even with many threads" *
          doctest::test_suite("slow")) {
  check_memory(noise(10'000));
}

TEST_CASE("writing a layer of poorly compressible data uses a bounded amount of memory" * doctest::test_suite("full")) {
  check_memory(noise(1'000'000));
}

}  // namespace image_layer_test
