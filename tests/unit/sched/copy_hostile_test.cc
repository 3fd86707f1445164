// Tests archives that attempt to write outside of the target.
#include <doctest/doctest.h>

#include "copy_support.h"
#include "kube/copy/target_tree.h"
#include "kube/copy/unpack.h"

namespace copy_hostile_test {

using namespace testing;

namespace {

// A tar archive with exactly these ustar headers, whose fields are written by hand so that no library sanitizes them.
class Archive {
 public:
  Archive& add(char type, const std::string& name, const std::string& content = {}, const std::string& to = {},
               unsigned mode = 0644) {
    std::string header(512, '\0');
    header.replace(0, name.size(), name);
    put(header, 100, "%07o", mode);
    put(header, 108, "%07o", 0);
    put(header, 116, "%07o", 0);
    put(header, 124, "%011o", static_cast<unsigned>(content.size()));
    put(header, 136, "%011o", 1000000000U);
    header.replace(148, 8, "        ");
    header[156] = type;
    header.replace(157, to.size(), to);
    header.replace(257, 8,
                   std::string("ustar\0"
                               "00",
                               8));
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    put(header, 148, "%06o", sum);
    bytes_ += header + content + std::string((512 - content.size() % 512) % 512, '\0');
    return *this;
  }
  std::string bytes() const { return bytes_ + std::string(1024, '\0'); }

 private:
  static void put(std::string& header, std::size_t at, const char* format, unsigned value) {
    std::array<char, 16> text{};
    const int size = std::snprintf(text.data(), text.size(), format, value);
    header.replace(at, static_cast<std::size_t>(size), text.data(), static_cast<std::size_t>(size));
  }
  std::string bytes_;
};

struct Fixture {
  TemporaryDirectory directory;
  fs::path outside = directory.path() / "outside", target = directory.path() / "target";
  std::vector<std::string> notices;

  Fixture() {
    fs::create_directory(outside);
    fs::create_directory(target);
    write_file(outside / "victim", "untouched");
  }
  ~Fixture() {
    // Whatever the archive contained, nothing outside of the target has changed.
    CHECK(read_file(outside / "victim") == "untouched");
    CHECK(fs::hard_link_count(outside / "victim") == 1);
    CHECK(std::distance(fs::directory_iterator(outside), {}) == 1);
    CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 2);
  }

  void unpack_bytes(const std::string& bytes, std::size_t piece = 512) {
    std::size_t at = 0;
    const Pull pull = [&] {
      const std::string_view next = std::string_view(bytes).substr(std::min(at, bytes.size()), piece);
      at += piece;
      return next;
    };
    unpack(pull, target, [this](const std::string& line) { notices.push_back(line); });
  }
  void refused(const Archive& archive, const std::string& why) {
    CHECK_THROWS_WITH_AS(unpack_bytes(archive.bytes()), doctest::Contains(why.c_str()), Error);
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a name that leads out of the target with .. is rejected") {
  refused(Archive().add('0', "../outside/victim", "evil"), "leads outside the target");
  refused(Archive().add('0', "a/../../outside/victim", "evil"), "leads outside the target");
  refused(Archive().add('5', "..", ""), "leads outside the target");
  refused(Archive().add('0', "a/..", "evil"), "leads outside the target");
}

TEST_CASE_FIXTURE(Fixture, "an absolute name is rejected") {
  refused(Archive().add('0', (outside / "victim").string(), "evil"), "absolute path");
  refused(Archive().add('0', "//etc/passwd", "evil"), "absolute path");
}

TEST_CASE_FIXTURE(Fixture, "an entry below a symbolic link is rejected") {
  refused(Archive().add('2', "way", "", outside.string()).add('0', "way/victim", "evil"),
          "symbolic links are not followed");
  refused(Archive().add('2', "up", "", "..").add('0', "up/outside/victim", "evil"), "symbolic links are not followed");
  refused(Archive().add('2', "two", "", "..").add('5', "two/outside/new", ""), "symbolic links are not followed");
  CHECK(fs::is_symlink(target / "way"));
}

TEST_CASE_FIXTURE(Fixture, "a file replaces a link of the same name instead of being written through it") {
  unpack_bytes(Archive().add('2', "x", "", (outside / "victim").string()).add('0', "x", "evil").bytes());
  CHECK(read_file(target / "x") == "evil");
  CHECK_FALSE(fs::is_symlink(target / "x"));
}

TEST_CASE_FIXTURE(Fixture, "an existing link in the target is not followed") {
  fs::create_directory_symlink(outside, target / "there");
  refused(Archive().add('0', "there/victim", "evil"), "symbolic links are not followed");
  fs::create_symlink(outside / "victim", target / "file");
  unpack_bytes(Archive().add('0', "file", "new").bytes());
  CHECK(read_file(target / "file") == "new");
}

TEST_CASE_FIXTURE(Fixture, "a hard link can refer only to an earlier file of the archive") {
  refused(Archive().add('1', "x", "", (outside / "victim").string()), "absolute path");
  refused(Archive().add('1', "x", "", "../outside/victim"), "leads outside the target");
  write_file(target / "mine", "mine");
  refused(Archive().add('1', "x", "", "mine"), "is not an earlier file");
  refused(Archive().add('2', "soft", "", (outside / "victim").string()).add('1', "x", "", "soft"),
          "is not an earlier file");
  refused(Archive().add('0', "soft", "a").add('2', "soft", "", (outside / "victim").string()).add('1', "x", "", "soft"),
          "is not an earlier file");
}

TEST_CASE_FIXTURE(Fixture, "a link or file cannot replace a directory") {
  refused(Archive().add('5', "d", "", "", 0755).add('2', "d", "", outside.string()), "cannot write");
  refused(Archive().add('5', "e", "", "", 0755).add('0', "e", "file"), "cannot write");
}

TEST_CASE_FIXTURE(Fixture, "devices and pipes in an archive are skipped with a notice") {
  Archive archive;
  archive.add('3', "character").add('4', "block").add('6', "pipe").add('0', "file", "text");
  unpack_bytes(archive.bytes());
  CHECK(read_file(target / "file") == "text");
  CHECK(std::distance(fs::directory_iterator(target), {}) == 1);
  CHECK(notices.size() == 3);
  CHECK(notices.front() == "skipped 'character': not a file, directory or symbolic link");
}

TEST_CASE_FIXTURE(Fixture, "setuid and setgid bits of files are removed") {
  unpack_bytes(Archive().add('0', "x", "#!", "", 06755).bytes());
  CHECK(fs::status(target / "x").permissions() == fs::perms(0755));
}

TEST_CASE_FIXTURE(Fixture, "a truncated or damaged archive leaves no partial file") {
  write_file(target / "x", "good");
  const std::string whole = Archive().add('0', "x", std::string(5000, 'n')).bytes();
  CHECK_THROWS_AS(unpack_bytes(whole.substr(0, 3000)), Error);
  CHECK(read_file(target / "x") == "good");
  std::string damaged = whole;
  damaged[10] = 'y';
  CHECK_THROWS_WITH_AS(unpack_bytes(damaged), doctest::Contains("invalid or incomplete tar archive"), Error);
  CHECK_THROWS_AS(unpack_bytes(some_bytes(4096)), Error);
  CHECK(read_file(target / "x") == "good");
  CHECK(std::distance(fs::directory_iterator(target), {}) == 1);
}

TEST_CASE_FIXTURE(Fixture, "an entry for the target itself does not change it") {
  fs::permissions(target, fs::perms(0755));
  unpack_bytes(Archive().add('5', "./", "", "", 0700).add('0', "./x", "text").bytes());
  CHECK(fs::status(target).permissions() == fs::perms(0755));
  refused(Archive().add('0', "./", "text"), "");
  refused(Archive().add('2', ".", "", "/etc"), "");
}

}  // namespace copy_hostile_test
