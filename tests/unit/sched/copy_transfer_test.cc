// Tests copies with the commands that are run in a pod, here run on this machine with GNU's tools and with busybox's.
#include <doctest/doctest.h>

#include "copy_support.h"
#include "error_of.h"
#include "golden.h"

namespace copy_transfer_test {

using namespace testing;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Fixture {
  TemporaryDirectory directory;
  fs::path there = directory.path() / "there", here = directory.path() / "here", tools = directory.path() / "tools";
  std::vector<std::string> notices;
  CopyEvents events;

  Fixture() {
    for (const fs::path& path : {there, here, tools}) fs::create_directory(path);
    events.notice = [this](const std::string& line) { notices.push_back(line); };
    events.patience = std::chrono::seconds(60);
    events.first_pause = std::chrono::milliseconds(1);
  }
  std::string at(const std::string& name) const { return (there / name).string(); }
  std::string to(const std::string& name) const { return (here / name).string(); }

  // Runs `check` with each set of tools.
  template <typename Check>
  void with_tools(const Check& check) {
    SUBCASE("with GNU tools") {
      LocalShell shell;
      check(shell);
    }
    SUBCASE("with busybox tools") {
      const std::string path = busybox_path(tools);
      if (path.empty()) return;
      LocalShell shell(path);
      check(shell);
    }
    // No temporary file is left on either side.
    for (const fs::path& side : {there, here}) {
      for (const auto& entry : fs::recursive_directory_iterator(side))
        CHECK_MESSAGE(entry.path().filename().string().find("adaptdl-cp") == std::string::npos, entry.path().string());
    }
  }
};

void make_tree(const fs::path& root) {
  fs::create_directories(root / "deep/er" / std::string(120, 'd') / std::string(120, 'e'));
  fs::create_directory(root / "empty");
  write_file(root / "plain", "plain text\n");
  write_file(root / "deep/er/program", "#!/bin/sh\n");
  write_file(root / "deep/er" / std::string(120, 'd') / std::string(120, 'e') / "far", some_bytes(3000));
  write_file(root / "a name with 'quotes', \"these\" and blanks", "1");
  write_file(root / "a line\nand another", "2");
  write_file(root / "-rf", "3");
  write_file(root / "nothing", "");
  write_file(root / "large", some_bytes(2 * kMiB + 17));
  fs::create_symlink("plain", root / "link");
  fs::create_symlink("/etc/nowhere", root / "dangling");
  fs::create_hard_link(root / "plain", root / "same");
  fs::permissions(root / "deep/er/program", fs::perms(0751));
  fs::permissions(root / "plain", fs::perms(0640));
  fs::permissions(root / "empty", fs::perms(0711));
  fs::permissions(root / "deep", fs::perms(0555));
  for (const char* name : {"plain", "deep/er/program", "empty", "deep/er", "deep"}) {
    const timespec times[] = {{1000000000, 0}, {1100000000, 0}};
    ::utimensat(AT_FDCWD, (root / name).c_str(), times, 0);
  }
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "files are copied with their contents and modes, even if names contain special characters") {
  with_tools([&](LocalShell& shell) {
    for (const std::string name : {"plain", "with blanks 'and' \"quotes\"", "a\nline", "-n", "$(touch x)", "*"}) {
      CAPTURE(name);
      write_file(at(name), some_bytes(100'000));
      fs::permissions(at(name), fs::perms(0640));
      download(shell, at(name), to("copy"), events);
      CHECK(read_file(to("copy")) == read_file(at(name)));
      CHECK(fs::status(to("copy")).permissions() == fs::perms(0640));
      fs::remove(to("copy"));
      upload(shell, at(name), at("up"), events);
      CHECK(read_file(at("up")) == read_file(at(name)));
      CHECK(fs::status(at("up")).permissions() == fs::perms(0640));
      fs::remove(at("up"));
    }
    CHECK(notices.empty());
  });
}

TEST_CASE_FIXTURE(Fixture, "an upload to a link replaces the link's target, or the link itself if it is dangling") {
  with_tools([&](LocalShell& shell) {
    for (const std::string name : {"file", "-n", "a\nline\n"}) {
      CAPTURE(name);
      fs::create_directory(there / "aside");
      write_file(there / "aside" / name, "old");
      fs::create_symlink("aside/" + name, there / "link");
      fs::create_symlink("link", there / "far");
      write_file(to("new"), "new");
      upload(shell, to("new"), at("far"), events);
      CHECK(read_file(there / "aside" / name) == "new");
      const TemporaryDirectory elsewhere;
      write_file(elsewhere.path() / "link", "newer");
      upload(shell, (elsewhere.path() / "link").string(), there.string(), events);
      CHECK(read_file(there / "aside" / name) == "newer");
      CHECK(fs::read_symlink(there / "far") == "link");
      CHECK(fs::read_symlink(there / "link") == "aside/" + name);
      for (const char* made : {"aside", "link", "far"}) fs::remove_all(there / made);
    }
    fs::create_symlink("nowhere", there / "dangling");
    upload(shell, to("new"), at("dangling"), events);
    CHECK(read_file(at("dangling")) == "new");
    CHECK(!fs::is_symlink(there / "dangling"));
    fs::remove(there / "dangling");
  });
}

TEST_CASE_FIXTURE(Fixture, "copying a file over a directory of the same name is rejected") {
  with_tools([&](LocalShell& shell) {
    write_file(to("same"), "file");
    fs::create_directories(there / "same");
    CHECK_THROWS_AS(upload(shell, to("same"), there.string(), events), UsageError);
    CHECK(fs::is_empty(there / "same"));
  });
}

TEST_CASE_FIXTURE(Fixture, "an empty file is copied in both directions") {
  with_tools([&](LocalShell& shell) {
    write_file(at("none"), "");
    download(shell, at("none"), to("none"), events);
    CHECK(fs::file_size(to("none")) == 0);
    upload(shell, to("none"), at("up"), events);
    CHECK(fs::file_size(at("up")) == 0);
  });
}

TEST_CASE_FIXTURE(Fixture, "a download resumes at the same byte after each of ten broken connections") {
  with_tools([&](LocalShell& shell) {
    write_file(at("x"), some_bytes(4 * kMiB));
    shell.breaks = {1 << 20};  // the command that inspects the file
    for (int i = 0; i < 10; ++i) shell.breaks.push_back(300'000);
    std::uint64_t most = 0;
    bool back = false;
    events.progress = [&](std::uint64_t done, std::optional<std::uint64_t>) {
      back = back || done < most;
      most = std::max(most, done);
    };
    download(shell, at("x"), to("x"), events);
    CHECK(shell.broken == 11);
    CHECK_FALSE(back);
    CHECK(read_file(to("x")) == read_file(at("x")));
  });
}

TEST_CASE_FIXTURE(Fixture, "an upload resumes after each of ten broken connections" * doctest::test_suite("slow")) {
  with_tools([&](LocalShell& shell) {
    write_file(to("x"), some_bytes(8 * kMiB));
    shell.breaks = {1 << 20};
    for (int i = 0; i < 10; ++i) {
      shell.breaks.push_back(700'000);
      shell.breaks.push_back(1000);  // the command that asks how much has arrived
    }
    upload(shell, to("x"), at("x"), events);
    CHECK(shell.broken == 21);
    CHECK(read_file(at("x")) == read_file(to("x")));
  });
}

TEST_CASE_FIXTURE(Fixture, "a directory is copied with modes, times, links, empty directories and long names") {
  with_tools([&](LocalShell& shell) {
    make_tree(there / "tree");
    download(shell, at("tree"), to("tree"), events);
    CHECK(tree_text(here / "tree") == tree_text(there / "tree"));
    upload(shell, to("tree"), at("back"), events);
    CHECK(tree_text(there / "back") == tree_text(there / "tree"));
    fs::permissions(there / "tree/deep", fs::perms(0755));
    CHECK(notices.empty());
  });
}

TEST_CASE_FIXTURE(Fixture, "a directory copy resumes after each of ten broken connections, in both directions" *
                               doctest::test_suite("slow")) {
  with_tools([&](LocalShell& shell) {
    make_tree(there / "tree");
    shell.breaks = {1000};
    for (int i = 0; i < 10; ++i) {
      shell.breaks.push_back(200'000);
      shell.breaks.push_back(1000);  // the command that compares what has arrived
    }
    download(shell, at("tree"), to("tree"), events);
    CHECK(shell.broken == 21);
    CHECK(tree_text(here / "tree") == tree_text(there / "tree"));

    shell.breaks = {1000, 1000};
    for (int i = 0; i < 10; ++i) shell.breaks.push_back(400'000);
    upload(shell, to("tree"), at("back"), events);
    CHECK(shell.breaks.empty());
    CHECK(tree_text(there / "back") == tree_text(there / "tree"));
    fs::permissions(there / "tree/deep", fs::perms(0755));
  });
}

TEST_CASE_FIXTURE(Fixture,
                  "a directory that changes while the connection is broken is copied again from the beginning") {
  with_tools([&](LocalShell& shell) {
    make_tree(there / "tree");
    bool changed = false;
    events.trouble = [&](const std::string&) {
      if (!changed) write_file(there / "tree/large", some_bytes(2 * kMiB));
      changed = true;
    };
    shell.breaks = {1000, 1'500'000};
    download(shell, at("tree"), to("tree"), events);
    CHECK(read_file(here / "tree/large") == read_file(there / "tree/large"));
    CHECK(tree_text(here / "tree") == tree_text(there / "tree"));
    fs::permissions(there / "tree/deep", fs::perms(0755));
  });
}

TEST_CASE_FIXTURE(Fixture,
                  "a stream contains a file's bytes or a directory as a tar archive" * doctest::test_suite("slow")) {
  with_tools([&](LocalShell& shell) {
    make_tree(there / "tree");
    const auto open_file = [](const std::string& path) {
      return adaptdl::Fd(::open(path.c_str(), O_RDWR | O_CREAT, 0600));
    };
    shell.breaks = {1000, 500'000};
    download_stream(shell, at("tree/large"), {open_file(to("bytes")).get(), "a file"}, events);
    CHECK(read_file(to("bytes")) == read_file(at("tree/large")));
    shell.breaks = {1000, 500'000, 1000};
    download_stream(shell, at("tree"), {open_file(to("tar")).get(), "a file"}, events);
    fs::create_directory(there / "unpacked");
    shell.breaks = {1000, 500'000, 1000};
    upload_stream(shell, {open_file(to("tar")).get(), "a file"}, at("unpacked"), events);
    // busybox's tar sets the time of a directory before it writes the directory's entries.
    CHECK(tree_text(there / "unpacked", false) == tree_text(there / "tree", false));
    upload_stream(shell, {open_file(to("bytes")).get(), "a file"}, at("bytes"), events);
    CHECK(read_file(at("bytes")) == read_file(to("bytes")));
    fs::permissions(there / "tree/deep", fs::perms(0755));
    fs::permissions(there / "unpacked/deep", fs::perms(0755));
  });
}

TEST_CASE_FIXTURE(Fixture, "a failed copy keeps the existing file") {
  with_tools([&](LocalShell& shell) {
    write_file(at("x"), some_bytes(kMiB));
    write_file(to("x"), "good");
    events.patience = {};
    shell.breaks = {1000, 100'000, 0, 0, 0};
    CHECK_THROWS_WITH_AS(download(shell, at("x"), to("x"), events), doctest::Contains("the connection broke"), Error);
    CHECK(read_file(to("x")) == "good");
    write_file(to("y"), some_bytes(kMiB));
    write_file(at("y"), "good");
    shell.breaks = {1000, 100'000, 0, 0};
    CHECK_THROWS_AS(upload(shell, to("y"), at("y"), events), Error);
    CHECK(read_file(at("y")) == "good");
  });
}

TEST_CASE_FIXTURE(Fixture, "a stop request ends a copy and removes the partial file") {
  with_tools([&](LocalShell& shell) {
    write_file(at("x"), some_bytes(4 * kMiB));
    std::stop_source stop;
    events.stop = stop.get_token();
    events.progress = [&](std::uint64_t done, std::optional<std::uint64_t>) {
      if (done > kMiB) stop.request_stop();
    };
    CHECK_THROWS_AS(download(shell, at("x"), to("x"), events), Interrupted);
    CHECK_FALSE(fs::exists(to("x")));
  });
}

TEST_CASE_FIXTURE(Fixture, "a missing sha256sum causes a notice, and a missing tar is an error") {
  for (const char* name : {"sh", "cat", "stat"}) fs::create_symlink("/bin/busybox", tools / name);
  if (!fs::exists("/bin/busybox")) return;
  LocalShell shell(tools.string());
  write_file(at("x"), "text");
  download(shell, at("x"), to("x"), events);
  CHECK(read_file(to("x")) == "text");
  CHECK(notices == std::vector<std::string>{"pod 'here' has no sha256sum: only sizes were compared"});
  fs::create_directory(there / "tree");
  CHECK_THROWS_WITH_AS(download(shell, at("tree"), to("tree"), events),
                       doctest::Contains("tar: not found: the image lacks this program; use --image"), Error);
}

TEST_CASE_FIXTURE(Fixture, "an error names the file that cannot be read or written, and the reason") {
  LocalShell shell;
  CHECK_GOLDEN(::testing::error_of([&] { download(shell, at("gone"), to("x"), events); }));
  CHECK_GOLDEN(::testing::error_of([&] { upload(shell, to("gone"), at("x"), events); }));
  write_file(at("x"), "text");
  CHECK_GOLDEN(::testing::error_of([&] { download(shell, at("x"), to("gone/x"), events); }));
  CHECK_THROWS_WITH_AS(upload(shell, at("x"), at("gone/x"), events), doctest::Contains("gone/x' in pod 'here'"), Error);
  CHECK_GOLDEN(::testing::error_of<UsageError>([&] { download(shell, at("x"), to("new/"), events); }));
  CHECK_THROWS_AS(upload(shell, at("x"), "/dev/full/x", events), Error);
  const adaptdl::Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  CHECK_GOLDEN(::testing::error_of([&] { download_stream(shell, at("x"), {full.get(), "standard output"}, events); }));
  const adaptdl::Fd directory(::open(here.c_str(), O_RDONLY | O_CLOEXEC));
  CHECK_GOLDEN(::testing::error_of([&] { upload_stream(shell, {directory.get(), "standard input"}, at("y"), events); }));
}

TEST_CASE_FIXTURE(Fixture,
                  "copying into an existing directory adds the source, or its contents if its path ends in /.") {
  LocalShell shell;
  fs::create_directory(there / "tree");
  write_file(at("tree/x"), "text");
  fs::create_directory(here / "in");
  download(shell, at("tree"), to("in"), events);
  CHECK(read_file(to("in/tree/x")) == "text");
  download(shell, at("tree/."), to("in"), events);
  CHECK(read_file(to("in/x")) == "text");
  download(shell, at("tree/x"), to("in/tree/"), events);
  upload(shell, to("in"), at("tree"), events);
  CHECK(read_file(at("tree/in/x")) == "text");
  upload(shell, to("in/."), at("tree"), events);
  CHECK(read_file(at("tree/tree/x")) == "text");
}

}  // namespace copy_transfer_test
