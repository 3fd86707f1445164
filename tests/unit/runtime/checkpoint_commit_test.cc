// Tests that saving is atomic: whatever happens while a checkpoint is being written, the previous one is kept and
// loaded. Also tests which checkpoints are kept.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint_commit_support.h"
#include "checkpoint_support.h"
#include "golden.h"
#include "refuse_system_calls.h"

namespace checkpoint_commit_test {

using namespace checkpoint_test;
using namespace checkpoint_commit_support;

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

TEST_CASE("a kill during a save leaves the previous checkpoint intact, and the next save removes the leftovers" *
          doctest::test_suite("slow")) {
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

TEST_CASE("a kill at a random time leaves an intact checkpoint no older than the last one reported" *
          doctest::test_suite("slow")) {
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
  CHECK_GOLDEN(save_error());
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
  CHECK(log.has("checkpoint-1' was not written by this job"));
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

TEST_CASE("saving fails once the highest possible checkpoint number is in use") {
  const Directory directory;
  fs::create_directory(directory / "checkpoint-999999999999999999");
  const Job job(64);
  CHECK_GOLDEN(save_error());
}

TEST_CASE("the error of a failed save names the state that threw, and no files are left behind") {
  const Directory directory;
  Job job(std::size_t{20} << 20);
  job.model.before_chunk = [](std::size_t offset) {
    if (offset > 0) throw std::runtime_error("device lost\nand more lines");
  };
  CHECK_GOLDEN(save_error());
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
  CHECK_GOLDEN(save_error());
  state.in_sync = true;
  CHECK_GOLDEN(save_error());
  CHECK(directory.names().empty());
}

}  // namespace checkpoint_commit_test
