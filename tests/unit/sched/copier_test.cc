// Tests copies of large files by the copier, a real program that runs on this machine as it would in a pod.
#include <doctest/doctest.h>
#include <sys/utsname.h>

#include <set>

#include "copy_support.h"
#include "error_of.h"
#include "golden.h"
#include "kube/copy/copier.h"

namespace copier_test {

using namespace testing;

namespace {

constexpr std::size_t kSize = (std::size_t{40} << 20) + 17;
static_assert(kSize > Copier::kWorth);

// Flips a bit of the byte at offset `after` of each transfer that is long enough.
class Damaging : public Shell {
 public:
  explicit Damaging(std::uint64_t after) : after_(after) {}

  std::unique_ptr<Process> start(const std::vector<std::string>& command, bool with_input) override {
    return std::make_unique<Damaged>(*this, shell_.start(command, with_input));
  }
  std::string name() const override { return shell_.name(); }

 private:
  class Damaged : public Process {
   public:
    Damaged(Damaging& damaging, std::unique_ptr<Process> process) : damaging_(damaging), process_(std::move(process)) {}
    bool read(const Sink& out, const Sink& err) override {
      return process_->read([&](std::string_view bytes) { out(pass(bytes)); }, err);
    }
    void write(std::string_view bytes) override { process_->write(pass(bytes)); }
    int exit_code() override { return process_->exit_code(); }

   private:
    std::string pass(std::string_view bytes) {
      std::string passed(bytes);
      if (passed_ <= damaging_.after_ && damaging_.after_ < passed_ + bytes.size())
        passed[damaging_.after_ - passed_] ^= 1;
      passed_ += bytes.size();
      return passed;
    }
    Damaging& damaging_;
    std::unique_ptr<Process> process_;
    std::uint64_t passed_ = 0;
  };

  LocalShell shell_;
  const std::uint64_t after_;
};

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
  // Only the files of this program's copiers are checked, since other tests may send copiers at the same time.
  ~Fixture() {
    for (const std::string& copier : LocalShell::copiers)
      for (const fs::path place : {"/tmp", "/var/tmp"}) CHECK_FALSE(fs::exists(place / copier));
  }

  // Returns a shell with busybox's tools except `missing`.
  LocalShell shell_without(const std::set<std::string>& missing) {
    const std::string path = busybox_path(tools);
    for (const std::string& tool : missing) fs::remove(tools / tool);
    return LocalShell(path);
  }
  void copy_both_ways(Shell& shell) {
    const std::string bytes = some_bytes(kSize);
    write_file(here / "x", bytes);
    upload(shell, here / "x", there / "x", events);
    CHECK(read_file(there / "x") == bytes);
    download(shell, there / "x", here / "y", events);
    CHECK(read_file(here / "y") == bytes);
    for (const fs::path& side : {there, here}) {
      for (const auto& entry : fs::directory_iterator(side))
        CHECK_MESSAGE(entry.path().filename().string().size() == 1, entry.path().string());
    }
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "large files are verified even without sha256sum in the pod" * doctest::test_suite("slow")) {
  if (kCopierProgram.empty() || !fs::exists("/bin/busybox")) return;
  LocalShell shell = shell_without({"sha256sum"});
  copy_both_ways(shell);
  CHECK(notices.empty());
}

TEST_CASE_FIXTURE(Fixture, "transfers of large files resume after broken connections, in both directions" *
                               doctest::test_suite("slow")) {
  LocalShell shell;
  for (const std::uint64_t bytes : {1 << 20, 9 << 20, 1000, 9 << 20, 1000, 100, 1000, 9 << 20, 1000})
    shell.breaks.push_back(bytes);
  const std::string bytes = some_bytes(kSize);
  write_file(here / "x", bytes);
  upload(shell, here / "x", there / "x", events);
  CHECK(shell.broken == 9);
  CHECK(LocalShell::copiers.empty() == kCopierProgram.empty());
  CHECK(read_file(there / "x") == bytes);
  shell.breaks = {1 << 20, 9 << 20, 100, 9 << 20};
  download(shell, there / "x", here / "y", events);
  CHECK(shell.broken == 13);
  CHECK(read_file(here / "y") == bytes);
}

TEST_CASE_FIXTURE(Fixture, "a stream too large to buffer is uploaded and verified" * doctest::test_suite("slow")) {
  LocalShell shell;
  const std::string bytes = some_bytes(2 * kSize);
  write_file(here / "x", bytes);
  const adaptdl::Fd from(::open((here / "x").c_str(), O_RDONLY | O_CLOEXEC));
  upload_stream(shell, {from.get(), "a pipe"}, there / "x", events);
  CHECK(read_file(there / "x") == bytes);
  CHECK(notices.empty());
}

TEST_CASE_FIXTURE(Fixture, "a file corrupted in transit does not replace the existing one") {
  // The damaged byte is after the copier, which an upload sends first.
  write_file(here / "x", some_bytes(kSize));
  write_file(there / "x", "before");
  Damaging up(kCopierProgram.size() + (20 << 20));
  CHECK_THROWS_WITH_AS(upload(up, here / "x", there / "x", events), doctest::Contains("corrupted in transit"), Error);
  CHECK(read_file(there / "x") == "before");
  fs::copy_file(here / "x", there / "z");
  write_file(here / "z", "before");
  Damaging down(20 << 20);
  CHECK_THROWS_WITH_AS(download(down, there / "z", here / "z", events), doctest::Contains("corrupted in transit"),
                       Error);
  CHECK(read_file(here / "z") == "before");
}

TEST_CASE_FIXTURE(Fixture, "on another architecture, large files are copied and verified with the pod's own tools" *
                               doctest::test_suite("slow")) {
  if (!fs::exists("/bin/busybox")) return;
  LocalShell shell = shell_without({"uname"});
  write_file(tools / "uname", "#!/bin/sh\necho Linux other\n");
  fs::permissions(tools / "uname", fs::perms(0755));
  copy_both_ways(shell);
  CHECK(notices.empty());
  fs::remove(tools / "sha256sum");
  download(shell, there / "x", here / "y", events);
  CHECK(notices == std::vector<std::string>{"pod 'here' has no sha256sum: only sizes were compared"});
}

TEST_CASE_FIXTURE(Fixture,
                  "if a pod is replaced by one of another architecture, an upload restarts and a download fails" *
                      doctest::test_suite("slow")) {
  if (kCopierProgram.empty() || !fs::exists("/bin/busybox")) return;
  LocalShell shell = shell_without({"uname"});
  const auto machine = [&](const std::string& name) {
    write_file(tools / "uname", "#!/bin/sh\necho Linux " + name + "\n");
    fs::permissions(tools / "uname", fs::perms(0755));
  };
  utsname here_is{};
  ::uname(&here_is);
  events.progress = [&](std::uint64_t done, std::optional<std::uint64_t>) {
    if (done > 0) machine("other");
  };
  const std::string bytes = some_bytes(kSize);
  write_file(here / "x", bytes);
  machine(here_is.machine);
  shell.breaks = {1 << 20, 9 << 20};
  upload(shell, here / "x", there / "x", events);
  CHECK(read_file(there / "x") == bytes);
  machine(here_is.machine);
  shell.breaks = {1 << 20, 9 << 20};
  CHECK_GOLDEN(::testing::error_of([&] { download(shell, there / "x", here / "y", events); }));
  CHECK_FALSE(fs::exists(here / "y"));
}

TEST_CASE_FIXTURE(Fixture, "the error for a large file that cannot be written names the file") {
  LocalShell shell;
  write_file(here / "x", some_bytes(kSize));
  CHECK_THROWS_WITH_AS(upload(shell, here / "x", "/dev/full/x", events), doctest::Contains("/dev/full/x"), Error);
}

}  // namespace copier_test
