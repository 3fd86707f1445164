// Tests which checkpoint is loaded, and for which states.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "adaptdl/checkpoint.h"
#include "checkpoint_load_support.h"
#include "checkpoint_support.h"
#include "golden.h"

namespace checkpoint_load_test {

using namespace checkpoint_test;
using namespace checkpoint_load_support;

TEST_CASE("without a checkpoint, training starts from scratch, which is logged once") {
  const Directory directory;
  Number a("a", 1), b("b", 2);
  for (const fs::path& path : {directory.path(), directory / "missing"}) {
    ::setenv("ADAPTDL_CHECKPOINT_PATH", path.c_str(), 1);
    ckpt::reset();
    const Log log;
    CHECK_FALSE(ckpt::load_state(a, true));
    CHECK_FALSE(ckpt::load_state(b));
    CHECK_FALSE(ckpt::loaded_number());
    CHECK(log.count("no checkpoint in '" + path.string() + "': starting from the beginning") == 1);
  }
}

TEST_CASE("all states are loaded from the checkpoint that the first load chose, until reset() allows a new choice") {
  TwoCheckpoints two;
  CHECK(two.load() == 11);
  CHECK(ckpt::loaded_number() == 1);
  two.number.value = 12;
  REQUIRE(ckpt::save_all_states());
  CHECK(two.load() == 11);
  ckpt::reset();
  CHECK(ckpt::loaded_number() == 2);
}

TEST_CASE("checkpoint directories without a valid number are ignored with a warning, other entries silently") {
  TwoCheckpoints two;
  for (const char* name : {"checkpoint-abc", "checkpoint-00x", "checkpoint-", "checkpoint-01", "checkpoint--1",
                           "checkpoint-9999999999999999999", "lost+found", "checkpoints", ".saving-9-1-x"})
    fs::create_directory(two.directory / name);
  const Log log;
  CHECK(two.load() == 11);
  CHECK(log.count("ignoring ") == 6);
  CHECK(log.has("checkpoint-00x': 'checkpoint-' is not followed by a number"));
  CHECK(ckpt::list(two.directory.path()).size() == 2);
}

TEST_CASE("a new checkpoint is numbered after the highest existing one, even if that is damaged") {
  TwoCheckpoints two;
  fs::create_directory(two.directory / "checkpoint-41");
  const auto path = ckpt::save_all_states();
  REQUIRE(path);
  CHECK(path->filename() == "checkpoint-42");
}

TEST_CASE("loading a required state that is missing fails and lists the available states") {
  TwoCheckpoints two;
  Number other("other");
  CHECK_FALSE(ckpt::load_state(other));
  const std::string text = error_of([&] { ckpt::load_state(other, true); });
  CHECK(contains(text, "checkpoint-1' has no state 'other'; it has: 'model', 'number'"));
}

TEST_CASE("the first save after a load warns once about each state that was not loaded") {
  const Directory directory;
  {
    const Number kept("kept"), gone("gone"), idle("idle");
    REQUIRE(ckpt::save_all_states());
  }
  ckpt::reset();
  Number kept("kept"), idle("idle");
  REQUIRE(ckpt::load_state(kept));
  const Log log;
  REQUIRE(ckpt::save_all_states());
  REQUIRE(ckpt::save_all_states());
  CHECK(log.count("was not loaded by this program") == 2);
  CHECK(log.count("state 'gone' of checkpoint-0 was not loaded by this program and is not in the new checkpoint") == 1);
  CHECK(log.count("state 'idle' of checkpoint-0 was not loaded by this program and starts from its initial values in "
                  "the new checkpoint") == 1);
}

TEST_CASE("a state created later is loaded from the chosen checkpoint, even if that has since been deleted") {
  TwoCheckpoints two;
  REQUIRE(ckpt::load_state(two.number, true));
  for (int i = 0; i < 4; ++i) REQUIRE(ckpt::save_all_states());
  CHECK_FALSE(fs::exists(two.directory / "checkpoint-1"));
  REQUIRE(ckpt::load_state(two.model, true));
  CHECK(two.model.tensors["weight"].data == std::string(1000, 'b'));
}

TEST_CASE("loading while another process saves and prunes always finds an intact checkpoint") {
  TwoCheckpoints two;
  const pid_t saver = start_child([&] {
    ::setenv("ADAPTDL_CHECKPOINT_KEEP", "1", 1);
    for (int i = 2; i < 150; ++i) {
      two.number.value = 10 + i;
      two.model.tensors["weight"] = {"U8", {1000}, std::string(1000, static_cast<char>('a' + i))};
      if (!ckpt::save_all_states()) return 1;
    }
    return 0;
  });
  const Log log;
  int last = 0;
  while (last < 150 + 9) {
    ckpt::reset();
    const int number = two.load();
    CHECK(number >= last);
    last = number;
  }
  CHECK(wait_for(saver) == 0);
  CHECK_FALSE(log.has("warning"));
}

TEST_CASE("loading fails if file descriptors run out, instead of falling back to an older checkpoint") {
  TwoCheckpoints two;
  const int status = run_child([&] {
    rlimit limit{};
    const int free = ::dup(0);
    limit.rlim_cur = static_cast<rlim_t>(free) + 2;
    limit.rlim_max = limit.rlim_cur;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::close(free);
    try {
      ckpt::load_state(two.model);
    } catch (const ckpt::CheckpointError& error) {
      return contains(error.what(), "Too many open files") && !contains(error.what(), "no intact checkpoint") ? 0 : 1;
    }
    return 2;
  });
  CHECK(status == 0);
}

TEST_CASE("loading fails if the checkpoint path is not a directory or not readable") {
  const Directory directory;
  Number state("a");
  write_file(directory.root() / "file", "x");
  ::setenv("ADAPTDL_CHECKPOINT_PATH", (directory.root() / "file").c_str(), 1);
  ckpt::reset();
  CHECK_GOLDEN(error_of([&] { ckpt::load_state(state); }));
  if (::geteuid() != 0) {
    MESSAGE("skipped in part: only root can become a user without permissions");
    return;
  }
  fs::permissions(directory.path(), fs::perms::none);
  fs::permissions(directory.root(), fs::perms::all);
  const int status = run_child([&] {
    if (::setresuid(65534, 65534, 65534) != 0) return 3;
    ::setenv("ADAPTDL_CHECKPOINT_PATH", directory.path().c_str(), 1);
    try {
      ckpt::load_state(state);
    } catch (const ckpt::CheckpointError& error) {
      return contains(error.what(), "Permission denied") ? 0 : 1;
    }
    return 2;
  });
  CHECK(status == 0);
}

}  // namespace checkpoint_load_test
