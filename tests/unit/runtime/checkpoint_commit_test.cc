// Tests that saving is atomic: whatever happens while a checkpoint is being written, the previous one is kept and
// loaded.
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <chrono>
#include <random>
#include <thread>

#include "checkpoint_support.h"
#include "refuse_system_calls.h"

namespace checkpoint_commit_test {

using namespace checkpoint_test;

namespace {

// Several states that all save the same step. The tensor is large enough for saving to take a while.
struct Job {
  explicit Job(std::size_t bytes = std::size_t{1} << 20) : model(step, bytes) {}
  struct Model : ckpt::State {
    Model(const int& s, std::size_t b) : State("model"), step(s), bytes(b) {}
    void save(ckpt::Writer& writer) const override {
      writer.tensor({"weight", "I32", {static_cast<std::int64_t>(bytes / 4)}},
                    [this](std::size_t offset, std::span<std::byte> out) {
                      if (before_chunk) before_chunk(offset);
                      for (std::size_t i = 0; i + 4 <= out.size(); i += 4) std::memcpy(out.data() + i, &step, 4);
                    });
    }
    void load(const ckpt::Reader& reader) override {
      std::vector<std::int32_t> data(bytes / 4);
      reader.tensor("weight", std::as_writable_bytes(std::span(data)));
      loaded = data.front();
      for (const std::int32_t value : data) consistent = consistent && value == loaded;
    }
    const int& step;
    std::size_t bytes;
    std::function<void(std::size_t)> before_chunk;
    int loaded = -1;
    bool consistent = true;
  };

  void save() {
    first.value = last.value = step;
    REQUIRE(ckpt::save_all_states());
  }
  // Returns the step that all states load.
  int load() {
    ckpt::reset();
    if (!ckpt::load_state(first)) return -1;
    REQUIRE(ckpt::load_state(last));
    REQUIRE(ckpt::load_state(model));
    CHECK(model.consistent);
    CHECK(first.value == last.value);
    CHECK(first.value == model.loaded);
    return first.value;
  }

  int step = 0;
  Number first{"a-first"};
  Model model;
  Number last{"z-last"};
};

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

// For use in a child: returns `code` as the exit status unless the condition holds.
#define EXPECT_OR(code, condition) \
  if (!(condition)) return code

std::string save_error() {
  try {
    ckpt::save_all_states();
  } catch (const ckpt::CheckpointError& error) {
    return error.what();
  }
  return "saved";
}

}  // namespace

TEST_CASE("checkpoints are numbered from 0, and the newest two are kept") {
  const Directory directory;
  Job job(64);
  for (job.step = 0; job.step < 5; ++job.step) job.save();
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-3", "checkpoint-4"});
  CHECK(job.load() == 4);
}

TEST_CASE("checkpoints are private to their user regardless of the umask, and existing directories keep their mode") {
  Directory directory;
  Job job(64);
  const mode_t before = ::umask(0);
  fs::permissions(directory.path(), fs::perms::all);
  job.save();
  CHECK(fs::status(directory.path()).permissions() == fs::perms::all);
  directory.use(directory.root() / "new" / "checkpoints");
  job.save();
  ::umask(before);
  for (const fs::path& path : {directory.root() / "new", directory.path(), directory / "checkpoint-0",
                               directory.root() / "checkpoints" / "checkpoint-0"})
    CHECK(fs::status(path).permissions() == fs::perms::owner_all);
  for (const auto& file : fs::directory_iterator(directory / "checkpoint-0"))
    CHECK(file.status().permissions() == (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("ADAPTDL_CHECKPOINT_KEEP sets how many intact checkpoints are kept") {
  const Directory directory;
  ::setenv("ADAPTDL_CHECKPOINT_KEEP", "3", 1);
  Job job(64);
  for (job.step = 0; job.step < 4; ++job.step) job.save();
  fs::remove(directory / "checkpoint-3/manifest.json");
  job.save();
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-1", "checkpoint-2", "checkpoint-4"});
  ::setenv("ADAPTDL_CHECKPOINT_KEEP", "1", 1);
  job.save();
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-5"});
  ::setenv("ADAPTDL_CHECKPOINT_KEEP", "none", 1);
  CHECK(contains(save_error(), "ADAPTDL_CHECKPOINT_KEEP"));
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-5"});
}

TEST_CASE("a save never deletes a checkpoint of a newer format") {
  const Directory directory;
  Job job(64);
  job.save();
  write_file(directory / "checkpoint-0/manifest.json", R"({"format": 9})");
  for (int i = 0; i < 4; ++i) job.save();
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-0", "checkpoint-3", "checkpoint-4"});
}

TEST_CASE("a kill during a save leaves the previous checkpoint intact, and the next save cleans up") {
  const Directory directory;
  Job job(std::size_t{24} << 20);
  job.step = 1;
  job.save();
  for (std::size_t chunk = 0; chunk < 3; ++chunk) {
    const int status = run_child([&] {
      job.step = 2;
      job.model.before_chunk = [&](std::size_t offset) {
        if (offset >= chunk * (std::size_t{8} << 20)) ::raise(SIGKILL);
      };
      ckpt::save_all_states();
      return 0;
    });
    CHECK(status == -SIGKILL);
    CHECK(directory.names().size() == 2);
    CHECK(job.load() == 1);
  }
  CHECK(directory.names().front().starts_with(".saving-1-"));
  job.save();
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-0", "checkpoint-1"});
}

TEST_CASE("a kill at a random time leaves an intact checkpoint no older than the last one reported") {
  const Directory directory;
  Job job(std::size_t{128} << 10);
  job.save();
  std::mt19937 random(7);
  int last = 0;
  for (int round = 0; round < 60; ++round) {
    int channel[2];
    REQUIRE(::pipe(channel) == 0);
    const pid_t saver = start_child([&] {
      for (job.step = last + 1;; ++job.step) {
        job.first.value = job.last.value = job.step;
        if (!ckpt::save_all_states()) return 1;
        if (::write(channel[1], &job.step, sizeof(int)) != sizeof(int)) return 2;
      }
    });
    ::close(channel[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(std::uniform_int_distribution<int>(0, 40'000)(random)));
    REQUIRE(::kill(saver, SIGKILL) == 0);
    CHECK(wait_for(saver) == -SIGKILL);
    int reported = last;
    while (::read(channel[0], &reported, sizeof(int)) == sizeof(int)) {
    }
    ::close(channel[0]);
    const int loaded = job.load();
    CHECK(loaded >= reported);
    CHECK(loaded <= reported + 1);
    last = loaded;
  }
  MESSAGE("steps saved: ", last);
  job.save();
  CHECK(directory.names().size() == 2);  // everything that was left behind has been deleted
}

TEST_CASE("a save deletes leftovers of dead processes but not what a live process is writing") {
  const Directory directory;
  fs::create_directories(directory / ".saving-3-1-dead/inner");
  fs::create_directories(directory / ".deleting-2-dead");
  fs::create_directory(directory / ".saving-4-2-alive");
  fs::create_directory(directory / "unrelated");
  const int alive = ::open((directory / ".saving-4-2-alive").c_str(), O_RDONLY | O_DIRECTORY);
  REQUIRE(::flock(alive, LOCK_EX) == 0);
  Job job(64);
  job.save();
  CHECK(directory.names() == std::vector<std::string>{".saving-4-2-alive", "checkpoint-0", "unrelated"});
  ::close(alive);
  job.save();
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-0", "checkpoint-1", "unrelated"});
}

TEST_CASE("two concurrent savers leave only intact checkpoints, and a conflict is reported as an error") {
  const Directory directory;
  ::setenv("ADAPTDL_CHECKPOINT_KEEP", "1000", 1);
  Job job(std::size_t{2} << 20);
  const auto saver = [&](int step) {
    return start_child([&, step] {
      for (int i = 0; i < 25; ++i) {
        job.step = job.first.value = job.last.value = step;
        const std::string error = save_error();
        if (error != "saved" && !contains(error, "two jobs save to the same directory"))
          throw std::runtime_error(error);
      }
      return 0;
    });
  };
  const pid_t one = saver(1), two = saver(2);
  CHECK(wait_for(one) == 0);
  CHECK(wait_for(two) == 0);
  for (const ckpt::Entry& entry : ckpt::list(directory.path())) CHECK(ckpt::verify(entry.path).empty());
  for (const std::string& name : directory.names()) CHECK(name.starts_with("checkpoint-"));
  CHECK(job.load() >= 1);
}

TEST_CASE("a save does not replace a checkpoint that appears during the save") {
  const Directory directory;
  Job job(64);
  job.step = 1;
  job.model.before_chunk = [&](std::size_t) {
    fs::create_directory(directory / "checkpoint-0");
    write_file(directory / "checkpoint-0/precious", "x");
  };
  CHECK(contains(save_error(), "checkpoint-0: two jobs save to the same directory"));
  CHECK(read_file(directory / "checkpoint-0/precious") == "x");
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-0"});
}

TEST_CASE("a save warns about checkpoints of another job in its directory") {
  const Directory directory;
  Job job(64);
  job.save();
  CHECK(run_child([] { return ckpt::save_all_states() ? 0 : 1; }) == 0);
  const Log log;
  job.save();
  CHECK(log.has("checkpoint-1 was not written by this job"));
}

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
    job.model.bytes = 5 << 20;  // more than deleting all but one of them would free
    EXPECT_OR(8, contains(save_error(), "No space left on device"));
    EXPECT_OR(9, (directory.names() == std::vector<std::string>{"checkpoint-3", "checkpoint-4"}));
    for (const auto& name : directory.names()) EXPECT_OR(10, ckpt::verify(directory / name).empty());
    return 0;
  });
}

TEST_CASE("neither save nor prune deletes checkpoints that are temporarily unreadable") {
  const Directory directory;
  Job job(64);
  for (job.step = 0; job.step < 2; ++job.step) job.save();
  ::setenv("ADAPTDL_CHECKPOINT_KEEP", "1", 1);
  const int status = run_child([&] {
    EXPECT_OR(1, testing::refuse_system_calls({SYS_read, SYS_pread64}, EIO));
    EXPECT_OR(2, ckpt::save_all_states());
    EXPECT_OR(3, ckpt::prune(directory.path(), 1, false).empty());
    return 0;
  });
  CHECK(status == 0);
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-0", "checkpoint-1", "checkpoint-2"});
  job.save();
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-3"});
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
    EXPECT_OR(2, contains(error, "no checkpoint was saved: cannot write " + directory.path().string()));
    EXPECT_OR(3, contains(error, "model.safetensors: No space left on device"));
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
    EXPECT_OR(1, contains(error, "model.safetensors: File too large"));
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
    EXPECT_OR(3, contains(error, "cannot create " + (directory / ".saving-1-").string()));
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
    CHECK(log.has(directory.path().string() + " and the checkpoints in it have disappeared; creating it again"));
  }
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-0"});
  fs::remove_all(directory.root());
  CHECK(contains(save_error(), directory.path().string() + " and its parent directory have disappeared"));
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

TEST_CASE("saving fails once the highest possible checkpoint number is in use") {
  const Directory directory;
  fs::create_directory(directory / "checkpoint-999999999999999999");
  const Job job(64);
  CHECK(contains(save_error(), "it has the highest possible number"));
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
  CHECK(contains(save_error(), "file is not a directory"));
}

TEST_CASE("a failed save names the state that threw, and leaves no files behind") {
  const Directory directory;
  Job job(std::size_t{20} << 20);
  job.model.before_chunk = [](std::size_t offset) {
    if (offset > 0) throw std::runtime_error("device lost\nand more lines");
  };
  CHECK(save_error() == "no checkpoint was saved: state 'model': device lost");
  CHECK(directory.names().empty());
  struct Throwing : Number {
    Throwing() : Number("throwing") {}
    void save(ckpt::Writer&) const override { throw std::runtime_error("save refused"); }
    void sync() override {
      if (in_sync) throw 42;
    }
    bool in_sync = false;
  } state;
  job.model.before_chunk = {};
  CHECK(save_error() == "no checkpoint was saved: state 'throwing': save refused");
  state.in_sync = true;
  CHECK(save_error() == "no checkpoint was saved: state 'throwing': unknown exception");
  CHECK(directory.names().empty());
}

}  // namespace checkpoint_commit_test
