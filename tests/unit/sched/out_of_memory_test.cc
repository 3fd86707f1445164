#include "local/replica/out_of_memory.h"

#include <doctest/doctest.h>

#include <fstream>

#include "temporary_directory.h"

namespace out_of_memory_test {

using namespace adaptdl;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

// Writes the /proc and cgroup v2 files that count OOM kills.
void describe_machine(const fs::path& root, int group_kills, int machine_kills) {
  write(root / "proc/self/cgroup", "0::/jobs/mine\n");
  write(root / "proc/vmstat", "nr_free_pages 12\noom_kill " + std::to_string(machine_kills) + "\n");
  write(root / "sys/fs/cgroup/jobs/mine/memory.events",
        "low 0\noom 9\noom_kill " + std::to_string(group_kills) + "\noom_group_kill 0\n");
}

}  // namespace

TEST_CASE("an OOM kill in the replicas' control group is detected, but one in another group is not") {
  const testing::TemporaryDirectory root;
  describe_machine(root.path(), 3, 5);
  const sched::OomWatch watch(root.path());
  CHECK_FALSE(watch.killed_lately());
  describe_machine(root.path(), 3, 6);
  CHECK_FALSE(watch.killed_lately());
  describe_machine(root.path(), 4, 7);
  CHECK(watch.killed_lately());
}

TEST_CASE("an OOM kill on the machine is detected if the control group has no count, as the root group has none") {
  const testing::TemporaryDirectory root;
  write(root.path() / "proc/self/cgroup", "0::/\n");
  write(root.path() / "proc/vmstat", "oom_kill 5\n");
  const sched::OomWatch watch(root.path());
  CHECK_FALSE(watch.killed_lately());
  write(root.path() / "proc/vmstat", "oom_kill 6\n");
  CHECK(watch.killed_lately());
}

TEST_CASE("an OOM kill is detected with cgroup v1") {
  const testing::TemporaryDirectory root;
  write(root.path() / "proc/self/cgroup", "8:pids:/\n4:cpuset,memory:/mine\n0::/\n");
  write(root.path() / "proc/vmstat", "oom_kill 7\n");
  write(root.path() / "sys/fs/cgroup/memory/mine/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  const sched::OomWatch watch(root.path());
  CHECK_FALSE(watch.killed_lately());
  write(root.path() / "sys/fs/cgroup/memory/mine/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  CHECK(watch.killed_lately());
}

TEST_CASE("an old OOM kill is not reported as recent") {
  const testing::TemporaryDirectory root;
  describe_machine(root.path(), 0, 0);
  sched::OomWatch watch(root.path());
  describe_machine(root.path(), 1, 1);
  const auto now = sched::OomWatch::Clock::now();
  watch.tick(now + 4s);
  CHECK(watch.killed_lately());  // the kill may still be recent
  watch.tick(now + 8s);
  CHECK_FALSE(watch.killed_lately());
}

TEST_CASE("a machine without OOM counters reports no kill") {
  const testing::TemporaryDirectory root;
  const sched::OomWatch watch(root.path());
  CHECK_FALSE(watch.killed_lately());
}

TEST_CASE("out-of-memory errors in a program's last lines are recognized") {
  using Lines = std::vector<std::string>;
  CHECK(sched::mentions_out_of_memory(
      Lines{"step 3", "terminate called after throwing an instance of 'std::bad_alloc'", "  what()"}));
  CHECK(sched::mentions_out_of_memory(Lines{"RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB"}));
  CHECK(sched::mentions_out_of_memory(Lines{"torch.cuda.OutOfMemoryError: ..."}));
  CHECK(sched::mentions_out_of_memory(
      Lines{"DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"}));
  CHECK(sched::mentions_out_of_memory(Lines{"fork: Cannot allocate memory"}));
  CHECK_FALSE(sched::mentions_out_of_memory(Lines{"loss 0.3", "error: no such file"}));
  CHECK_FALSE(sched::mentions_out_of_memory(Lines{}));
}

}  // namespace out_of_memory_test
