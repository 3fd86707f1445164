// Tests the mounts of RUN: what a step finds in them, and what remains afterwards.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <chrono>
#include <functional>
#include <latch>
#include <thread>

#include "adaptdl/error.h"
#include "error_of.h"
#include "http/http.h"
#include "image_root.h"

namespace image_run_mounts_test {

using namespace testing;
using namespace std::chrono_literals;
using Type = Mount::Type;
using ::testing::error_of;

namespace {

StepMount cache_of(const std::string& id, Mount::Sharing sharing = Mount::Sharing::kShared) {
  StepMount mount = mount_of(Type::kCache, "/cache");
  mount.mount.id = id;
  mount.mount.sharing = sharing;
  return mount;
}

// Returns whether any file in the directory has the text in its path or content.
bool anywhere(const fs::path& directory, const std::string& text) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory))
    if (entry.path().string().find(text) != std::string::npos ||
        (entry.symlink_status().type() == fs::file_type::regular && read(entry.path()).find(text) != std::string::npos))
      return true;
  return false;
}

}  // namespace

TEST_CASE("a bind mount is read-only unless requested, and writes to it are discarded") {
  Steps steps;
  write(steps.path("src/dir/file"), "content");
  StepMount mount = mount_of(Type::kBind, "/in");
  mount.from = {steps.path("src")};
  mount.mount.source = "/dir";
  SandboxStep step = steps.step("cat /in/file; echo; touch /in/x || cp /in/file /copy");
  step.mounts = {mount};
  CHECK(steps.run(step).starts_with("content\n"));
  CHECK(tree(steps.upper()) == std::vector<std::string>{"copy"});

  step = steps.step("echo new > /in/file; rm -r /in/gone; cat /in/file");
  write(steps.path("src/dir/gone/x"), "x");
  mount.mount.read_only = false;
  step.mounts = {mount};
  CHECK(steps.run(step) == "new\n");
  CHECK(read(steps.path("src/dir/file")) == "content");
  CHECK(fs::exists(steps.path("src/dir/gone/x")));
  CHECK(tree(steps.upper()).empty());
}

TEST_CASE("a bind-mounted file comes from the topmost layer that contains it, and its target may be relative") {
  Steps steps;
  write(steps.path("one/f"), "one");
  write(steps.path("two/f"), "two");
  StepMount mount = mount_of(Type::kBind, "f.txt");
  mount.from = {steps.path("one"), steps.path("two")};
  mount.mount.source = "f";
  SandboxStep step = steps.step("cat /bound/f.txt");
  step.working_directory = "/bound";
  step.mounts = {mount};
  CHECK(steps.run(step) == "one\n");
}

TEST_CASE("links in a bind source cannot leave the source's root") {
  Steps steps;
  write(steps.path("secret/file"), "outside");
  fs::create_directories(steps.path("src/secret"));
  fs::create_symlink(steps.path("secret/file"), steps.path("src/absolute"));
  fs::create_symlink("../secret/file", steps.path("src/relative"));
  for (const char* name : {"absolute", "relative", "../secret/file"}) {
    StepMount mount = mount_of(Type::kBind, "/in");
    mount.from = {steps.path("src")};
    mount.mount.source = name;
    SandboxStep step = steps.step("cat /in");
    step.mounts = {mount};
    CHECK(error_of([&] { steps.run(step); }) == "cannot mount '" + std::string(name) + "': No such file or directory");
  }
}

TEST_CASE("links in a mount target are resolved within the image") {
  Steps steps;
  const fs::path outside = steps.path("outside");
  fs::create_directory(outside);
  fs::create_symlink(outside, steps.root() / "link");
  fs::create_symlink("/", steps.root() / "top");
  SandboxStep step = steps.step("ls -d " + outside.string() + "/made");
  step.mounts = {mount_of(Type::kTmpfs, "/link/made")};
  CHECK(steps.run(step) == outside.string() + "/made\n");
  CHECK(fs::is_empty(outside));
  CHECK(tree(steps.upper()).empty());
  step = steps.step("true");
  step.mounts = {mount_of(Type::kTmpfs, "/top")};
  CHECK(error_of([&] { steps.run(step); }) == "cannot mount at '/top': it is the root directory");
}

TEST_CASE("a cache mount keeps its files between steps, and no layer contains them") {
  Steps steps;
  SandboxStep step = steps.step("echo kept > /cache/file");
  step.mounts = {cache_of("a")};
  CHECK(steps.run(step) == "");
  CHECK(tree(steps.upper()).empty());
  step = steps.step("cat /cache/file; stat -c '%a %u %g' /cache");
  step.mounts = {cache_of("a")};
  CHECK(steps.run(step) == "kept\n755 0 0\n");
  step = steps.step("ls /cache; touch /cache/x");
  step.mounts = {cache_of("b")};
  step.mounts[0].mount.mode = 01770;
  CHECK(steps.run(step) == "");
  step = steps.step("stat -c %a /cache");
  step.mounts = {cache_of("b")};
  CHECK(steps.run(step) == "1770\n");
}

TEST_CASE("a cache mount starts with a copy of its source, which stays unchanged") {
  Steps steps;
  write(steps.path("from/dir/sub/file"), "begin");
  fs::create_symlink("file", steps.path("from/dir/sub/link"));
  chmod(steps.path("from/dir/sub/file").c_str(), 0754);
  SandboxStep step = steps.step("cat /cache/sub/link; stat -c ' %a' /cache/sub/file; echo more > /cache/sub/file");
  step.mounts = {cache_of("a")};
  step.mounts[0].from = {steps.path("from")};
  step.mounts[0].mount.from = "image";
  step.mounts[0].mount.source = "/dir";
  CHECK(steps.run(step) == "begin 754\n");
  CHECK(read(steps.path("from/dir/sub/file")) == "begin");
  step.root.upper = steps.path("other");
  step.root.work = steps.path("other.work");
  step.scratch = steps.path("other.scratch");
  fs::create_directory(step.scratch);
  CHECK(steps.run(step) == "more\n 754\n");
}

TEST_CASE("a cache mount is shared, locked or private according to its sharing mode" * doctest::test_suite("slow")) {
  Steps steps;
  const auto two_at_once = [&](Mount::Sharing sharing, const std::string& script) {
    std::vector<SandboxStep> both;
    for (int i = 0; i < 2; ++i) {
      both.push_back(steps.step(script));
      both[i].environment = {{"PATH", "/bin"}, {"OWN", std::to_string(i)}, {"OTHER", std::to_string(1 - i)}};
      both[i].mounts = {cache_of("c" + std::to_string(static_cast<int>(sharing)), sharing)};
    }
    std::vector<std::string> texts(2);
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i) threads.emplace_back([&, i] { texts[i] = steps.run(both[i]); });
    threads.clear();
    return texts[0] + texts[1];
  };
  // Each step prints the number of steps that are using the cache at that time.
  const std::string alone = "touch /cache/$OWN; sleep 0.2; ls /cache | wc -l; rm /cache/$OWN";
  const std::string together =
      "touch /cache/$OWN; for i in $(seq 6000); do [ -e /cache/$OTHER ] && break; sleep 0.01; done; ls /cache | wc -l";
  CHECK(two_at_once(Mount::Sharing::kShared, together) == "2\n2\n");
  CHECK(two_at_once(Mount::Sharing::kLocked, alone) == "1\n1\n");
  CHECK(two_at_once(Mount::Sharing::kPrivate, alone) == "1\n1\n");
}

TEST_CASE("a step waiting for a locked cache can be stopped, or runs once the cache is free") {
  Steps steps;
  SandboxStep holder = steps.step("echo up; sleep 600"), waiter = steps.step("true");
  holder.mounts = {cache_of("x", Mount::Sharing::kLocked), cache_of("y", Mount::Sharing::kLocked)};
  holder.mounts[1].mount.target = "/other";
  waiter.mounts = {holder.mounts[1], holder.mounts[0]};
  std::latch up(1);
  std::stop_source held, stop;
  std::jthread holding([&] {
    CHECK_THROWS_AS(run_in_sandbox(
                        holder, [&](std::string_view) { up.count_down(); }, held.get_token()),
                    adaptdl::http::Stopped);
  });
  up.wait();
  stop.request_stop();
  CHECK_THROWS_AS(steps.run(waiter, stop.get_token()), adaptdl::http::Stopped);
  held.request_stop();
  CHECK(steps.run(waiter) == "");
}

TEST_CASE("a step that mounts one locked cache at two targets does not deadlock") {
  Steps steps;
  SandboxStep step = steps.step("echo x > /cache/f; cat /other/f");
  step.mounts = {cache_of("x", Mount::Sharing::kLocked), cache_of("x", Mount::Sharing::kLocked)};
  step.mounts[1].mount.target = "/other";
  CHECK(steps.run(step) == "x\n");
}

TEST_CASE("a step gets a secret as a read-only file or as a variable, and the secret is not stored") {
  Steps steps;
  SandboxStep step = steps.step("cat /run/secrets/key; stat -c ' %a %u' /run/secrets/key; echo x > /run/secrets/key");
  StepMount secret = mount_of(Type::kSecret, "/run/secrets/key");
  secret.content = "q7-secret-q7";
  step.mounts = {secret};
  CHECK(steps.run(step).starts_with("q7-secret-q7 400 0\n/bin/sh: can't create"));
  CHECK(tree(steps.upper()).empty());
  CHECK(!anywhere(steps.path(""), "q7-secret"));
  step = steps.step("echo $KEY; ls -d /run/secrets; sleep 0");
  secret.mount.target = "";
  secret.mount.environment = "KEY";
  step.mounts = {secret};
  CHECK(steps.run(step).starts_with("q7-secret-q7\n"));
  CHECK(!anywhere(steps.path(""), "q7-secret"));
}

TEST_CASE("a secret is not on disk while its step runs") {
  Steps steps;
  SandboxStep step = steps.step("echo up; sleep 600");
  step.mounts = {mount_of(Type::kSecret, "/run/secrets/key")};
  step.mounts[0].content = "q8-secret-q8";
  bool found = true;
  std::stop_source stop;
  const auto on_line = [&](std::string_view) {
    found = anywhere(steps.path(""), "q8-secret");
    stop.request_stop();
  };
  CHECK_THROWS_AS(run_in_sandbox(step, on_line, stop.get_token()), adaptdl::http::Stopped);
  CHECK(!found);
}

TEST_CASE("a tmpfs mount has the given size and is discarded after the step") {
  Steps steps;
  SandboxStep step = steps.step("ls /etc; touch /etc/x; dd if=/dev/zero of=/etc/y bs=1k count=200 2>/dev/null");
  step.mounts = {mount_of(Type::kTmpfs, "/etc")};
  step.mounts[0].mount.size = 65536;
  CHECK(steps.run(step) == "hosts\nresolv.conf\nexit code 1");
  CHECK(tree(steps.upper()).empty());
}

TEST_CASE("nested mounts are mounted outermost first and leave no mount points in a cache") {
  Steps steps;
  SandboxStep step = steps.step("ls /cache/a/b; touch /cache/a/b/x; touch /cache/y");
  step.mounts = {mount_of(Type::kTmpfs, "/cache/a/b"), cache_of("outer")};
  CHECK(steps.run(step) == "");
  CHECK(tree(steps.upper()).empty());
  step = steps.step("ls /cache");
  step.mounts = {cache_of("outer")};
  CHECK(steps.run(step) == "y\n");
}

TEST_CASE("the error for a mount target of the wrong type names the target") {
  Steps steps;
  SandboxStep step = steps.step("true");
  step.mounts = {mount_of(Type::kTmpfs, "/etc/passwd")};
  CHECK(error_of([&] { steps.run(step); }) == "cannot mount at '/etc/passwd': Not a directory");
  step = steps.step("true");
  step.mounts = {mount_of(Type::kSecret, "/etc")};
  CHECK(error_of([&] { steps.run(step); }) == "cannot mount at '/etc': Is a directory");
}

}  // namespace image_run_mounts_test
