#include "image/base/open_rooted.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "image_temporary.h"

namespace image_open_rooted_test {

using namespace adaptdl::image;
namespace fs = std::filesystem;

namespace {

// A directory tree, and a file beside it that no path in the tree may reach.
struct Tree {
  Tree() {
    fs::create_directories(place / "root/sub/deep");
    write_file(place / "root/file", "inside");
    write_file(place / "file", "outside");
    root = adaptdl::Fd(::open((place / "root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  // Returns the content of the file at a path, or the name of the error.
  std::string at(const std::string& path, Links links) const {
    const adaptdl::Fd file = open_rooted(root.get(), path, O_RDONLY, links);
    if (!file) return strerrorname_np(errno);
    char text[16] = "";
    const ssize_t count = ::read(file.get(), text, sizeof text - 1);
    return count < 0 ? strerrorname_np(errno) : text;
  }
  Temporary place;
  adaptdl::Fd root;
};

}  // namespace

TEST_CASE("links and .. stay within the root, and links in /proc are not followed") {
  const Tree tree;
  for (const std::string to :
       {"/file", "../file", "../../../../file", "/../file", "/sub/../file", "sub/deep/../../file"}) {
    CAPTURE(to);
    fs::create_symlink(to, tree.place / "root/link");
    CHECK(tree.at("link", Links::kInRoot) == "inside");
    CHECK(tree.at("link", Links::kRefused) == "ELOOP");
    fs::remove(tree.place / "root/link");
  }
  CHECK(tree.at("../file", Links::kInRoot) == "inside");
  CHECK(tree.at("../file", Links::kRefused) == "EXDEV");
  CHECK(tree.at("", Links::kInRoot) == "EISDIR");
  CHECK(tree.at("missing/file", Links::kInRoot) == "ENOENT");

  const adaptdl::Fd outside(::open((tree.place / "file").c_str(), O_RDONLY | O_CLOEXEC));
  const adaptdl::Fd proc(::open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
  const std::string magic = "self/fd/" + std::to_string(outside.get());
  for (const Links links : {Links::kInRoot, Links::kRefused}) {
    CHECK_FALSE(open_rooted(proc.get(), magic, O_RDONLY, links));
    CHECK(errno == ELOOP);
  }
}

TEST_CASE("a file is created with the given mode and close-on-exec") {
  const Tree tree;
  const adaptdl::Fd file =
      open_rooted(tree.root.get(), "sub/../new", O_WRONLY | O_CREAT | O_EXCL, Links::kInRoot, 0640);
  REQUIRE(file);
  struct stat info {};
  REQUIRE(::stat((tree.place / "root/new").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0640);
  CHECK((::fcntl(file.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

// The kernel returns EAGAIN for some of these lookups, because a concurrent rename may have changed where ".." leads.
TEST_CASE("opening a path does not fail because of concurrent renames elsewhere on the machine" *
          doctest::test_suite("slow")) {
  const Tree tree;
  std::string path;
  for (int i = 0; i < 100; ++i) path += "sub/deep/../../";
  const std::jthread renaming([&](const std::stop_token& stop) {
    const std::string one = tree.place / "one", other = tree.place / "other";
    write_file(one, "");
    while (!stop.stop_requested()) {
      ::rename(one.c_str(), other.c_str());
      ::rename(other.c_str(), one.c_str());
    }
  });
  for (int i = 0; i < 2000; ++i) REQUIRE(tree.at(path + "file", Links::kInRoot) == "inside");
}

}  // namespace image_open_rooted_test
