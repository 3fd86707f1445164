// Tests saving to a disk that is full, and to a directory that is missing or cannot be written: earlier checkpoints are
// kept, and the error states the reason.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint_commit_support.h"
#include "checkpoint_support.h"
#include "golden.h"

namespace checkpoint_storage_test {

using namespace checkpoint_test;
using namespace checkpoint_commit_support;

namespace {

// Mounts a file system of `size` bytes on `path` in a new mount namespace of this process. Returns false if that is not
// permitted.
bool mount_small(const fs::path& path, const std::string& size, unsigned long flags = 0) {
  if (::unshare(CLONE_NEWNS) != 0) return false;
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return ::mount("tmpfs", path.c_str(), "tmpfs", flags, ("size=" + size).c_str()) == 0;
}

constexpr int kSkipped = 77;

// Runs `body` in a child that may mount; it must return 0.
void check_with_mounts(const std::function<int()>& body) {
  const int status = run_child(body);
  if (status == kSkipped) {
    MESSAGE("skipped: mounting in a namespace is not permitted here");
    return;
  }
  CHECK(status == 0);
}

}  // namespace

TEST_CASE("a save fails before writing anything if the disk has too little space") {
  const Directory directory;
  Job job(std::size_t{8} << 20);
  check_with_mounts([&] {
    if (!mount_small(directory.path(), "6m")) return kSkipped;
    job.model.bytes = 1 << 20;
    EXPECT_OR(1, save_error() == "saved");
    job.model.bytes = 8 << 20;
    const std::string error = save_error();
    EXPECT_OR(2, contains(error, directory.path().string() + ": No space left on device (8.0 MiB needed"));
    EXPECT_OR(3, directory.names() == std::vector<std::string>{"checkpoint-0"});
    EXPECT_OR(4, ckpt::verify(directory / "checkpoint-0").empty());
    return 0;
  });
}

TEST_CASE("on a nearly full disk a save deletes older checkpoints, but never the newest intact one") {
  const Directory directory;
  Job job(std::size_t{2} << 20);
  ::setenv("ADAPTDL_CHECKPOINT_KEEP", "3", 1);
  check_with_mounts([&] {
    if (!mount_small(directory.path(), "7m")) return kSkipped;
    for (int i = 0; i < 3; ++i) EXPECT_OR(1, save_error() == "saved");
    const Log log;
    EXPECT_OR(2, save_error() == "saved");
    EXPECT_OR(3, log.has("; older checkpoints were deleted to make room"));
    EXPECT_OR(4, (directory.names() == std::vector<std::string>{"checkpoint-2", "checkpoint-3"}));
    EXPECT_OR(5, save_error() == "saved");
    const fs::path weights = directory / "checkpoint-4" / "model.safetensors";
    write_file(weights, std::string(fs::file_size(weights), 'x'));
    EXPECT_OR(6, save_error() == "saved");
    // The damaged checkpoint was deleted, and its number was used again.
    EXPECT_OR(7, (directory.names() == std::vector<std::string>{"checkpoint-3", "checkpoint-4"}));
    job.model.bytes = 5 << 20;  // more than the deletion of all but one checkpoint would free
    EXPECT_OR(8, contains(save_error(), "No space left on device"));
    EXPECT_OR(9, (directory.names() == std::vector<std::string>{"checkpoint-3", "checkpoint-4"}));
    for (const auto& name : directory.names()) EXPECT_OR(10, ckpt::verify(directory / name).empty());
    return 0;
  });
}

TEST_CASE("checkpoints whose files are also linked elsewhere are not deleted, because that would free no space") {
  const Directory directory;
  const Job job(std::size_t{2} << 20);
  ::setenv("ADAPTDL_CHECKPOINT_KEEP", "3", 1);
  check_with_mounts([&] {
    if (!mount_small(directory.path(), "7m")) return kSkipped;
    for (int i = 0; i < 3; ++i) EXPECT_OR(1, save_error() == "saved");
    fs::create_directory(directory / "copy");
    for (const char* name : {"checkpoint-0", "checkpoint-1"})
      fs::create_hard_link(directory / name / "model.safetensors", directory / "copy" / name);
    EXPECT_OR(2, contains(save_error(), "No space left on device"));
    EXPECT_OR(3, (directory.names() == std::vector<std::string>{"checkpoint-0", "checkpoint-1", "checkpoint-2", "copy"}));
    fs::remove_all(directory / "copy");
    EXPECT_OR(4, save_error() == "saved");
    EXPECT_OR(5, (directory.names() == std::vector<std::string>{"checkpoint-2", "checkpoint-3"}));
    return 0;
  });
}

TEST_CASE("a save fails if the disk fills up during the save, and keeps the previous checkpoint intact") {
  const Directory directory;
  Job job(std::size_t{1} << 20);
  check_with_mounts([&] {
    if (!mount_small(directory.path(), "16m")) return kSkipped;
    EXPECT_OR(1, save_error() == "saved");
    job.model.bytes = 10 << 20;
    job.model.before_chunk = [&](std::size_t offset) {
      if (offset == 0) write_file(directory / "other", std::string(8 << 20, 'x'));
    };
    const std::string error = save_error();
    EXPECT_OR(2, contains(error, "no checkpoint was saved: cannot write '" + directory.path().string()));
    EXPECT_OR(3, contains(error, "model.safetensors': No space left on device"));
    EXPECT_OR(4, error.find('\n') == std::string::npos);
    EXPECT_OR(5, (directory.names() == std::vector<std::string>{"checkpoint-0", "other"}));
    EXPECT_OR(6, ckpt::verify(directory / "checkpoint-0").empty());
    fs::remove(directory / "other");
    job.model.before_chunk = {};
    EXPECT_OR(7, save_error() == "saved");
    return 0;
  });
}

TEST_CASE("a save fails with the reason if a file exceeds the size limit") {
  const Directory directory;
  Job job(std::size_t{1} << 20);
  job.save();
  const int status = run_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string error = save_error();
    EXPECT_OR(1, contains(error, "model.safetensors': File too large"));
    EXPECT_OR(2, directory.names() == std::vector<std::string>{"checkpoint-0"});
    return 0;
  });
  CHECK(status == 0);
  CHECK(job.load() == 0);
}

TEST_CASE("a save to a read-only file system fails with the reason") {
  const Directory directory;
  Job job(64);
  check_with_mounts([&] {
    if (!mount_small(directory.path(), "16m")) return kSkipped;
    EXPECT_OR(1, save_error() == "saved");
    EXPECT_OR(2, ::mount("tmpfs", directory.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "") == 0);
    const std::string error = save_error();
    EXPECT_OR(3, contains(error, "cannot create '" + (directory / ".saving-1-").string()));
    EXPECT_OR(4, contains(error, "Read-only file system"));
    EXPECT_OR(5, ckpt::verify(directory / "checkpoint-0").empty());
    return 0;
  });
}

TEST_CASE("a save to a directory without write permission fails with the reason") {
  const Directory directory;
  Job job(64);
  job.save();
  fs::permissions(directory.path(),
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  fs::permissions(directory.root(), fs::perms::all);
  const int status = run_child([&] {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return kSkipped;
    EXPECT_OR(1, contains(save_error(), "Permission denied"));
    return 0;
  });
  CHECK(status == 0);
  fs::permissions(directory.path(), fs::perms::owner_all);
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-0"});
  CHECK(job.load() == 0);
}

TEST_CASE("the first save creates a missing directory and its parents") {
  Directory directory;
  directory.use(directory / "a/b/c");
  const Log log;
  Job job(64);
  job.save();
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-0"});
  CHECK_FALSE(log.has("warning"));
}

TEST_CASE("a deleted directory is recreated with a warning, but saving fails if its parent is gone") {
  const Directory directory;
  Job job(64);
  job.save();
  fs::remove_all(directory.path());
  {
    const Log log;
    job.save();
    CHECK(log.has("'" + directory.path().string() + "' and the checkpoints in it have disappeared; creating it again"));
  }
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-0"});
  fs::remove_all(directory.root());
  CHECK(contains(save_error(), "'" + directory.path().string() + "' and its parent directory have disappeared"));
  CHECK_FALSE(fs::exists(directory.root()));
}

TEST_CASE("a trailing slash in the checkpoint path is ignored") {
  Directory directory;
  directory.use(directory / "");
  Job job(64);
  job.save();
  fs::remove_all(directory.path());
  const Log log;
  job.save();
  CHECK(log.has("creating it again"));
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-0"});
}

TEST_CASE("a save fails if its directory is deleted during the save") {
  const Directory directory;
  Job job(std::size_t{20} << 20);
  job.model.before_chunk = [&](std::size_t) { fs::remove_all(directory.path()); };
  CHECK(contains(save_error(), "No such file or directory"));
  CHECK_FALSE(fs::exists(directory.path()));
}

TEST_CASE("a save fails if the checkpoint path is a file") {
  Directory directory;
  write_file(directory / "file", "x");
  directory.use(directory / "file");
  Job job(64);
  CHECK_GOLDEN(save_error());
}

}  // namespace checkpoint_storage_test
