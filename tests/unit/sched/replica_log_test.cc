#include "local/replica/replica_log.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "adaptdl/error.h"
#include "temporary_directory.h"

namespace replica_log_test {

using namespace adaptdl;
using sched::Stream;

namespace {

std::string read(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("new log files and directories are private, and existing directories keep their mode") {
  namespace fs = std::filesystem;
  const testing::TemporaryDirectory directory;
  const auto logs = directory.path() / "new" / "logs";
  const mode_t before = ::umask(0);
  const auto write = [](const fs::path& to) { sched::ReplicaLog(to, 0, "local/job", 0).flush(); };
  write(logs);
  const fs::path mine = directory.path() / "mine";
  fs::create_directory(mine);
  write(mine);
  ::umask(before);
  CHECK(fs::status(logs).permissions() == fs::perms::owner_all);
  for (const char* name : {"rank-0.log", ".order"})
    CHECK(fs::status(logs / name).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(fs::status(mine).permissions() == fs::perms::all);
  CHECK(fs::status(mine / "rank-0.log").permissions() == (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("a log has one header per start and the lines of both streams") {
  const testing::TemporaryDirectory directory;
  const auto logs = directory.path() / "new" / "logs";
  for (int start = 0; start < 2; ++start) {
    sched::ReplicaLog log(logs, 3, "local/job", start);
    log.line(Stream::kOut, "out", true);
    log.line(Stream::kErr, "err", true);
    CHECK_FALSE(log.flush().has_value());
  }
  const std::string text = read(logs / "rank-3.log");
  CHECK(text.starts_with("=== local/job rank 3, start 0, 20"));
  const std::size_t second = text.find("=== local/job rank 3, start 1, ");
  REQUIRE(second != std::string::npos);
  CHECK(text.substr(0, second).ends_with(" ===\nout\nerr\n"));
  CHECK(text.ends_with(" ===\nout\nerr\n"));
}

TEST_CASE("the pieces of a long line are joined until a line of the other stream follows") {
  const testing::TemporaryDirectory directory;
  sched::ReplicaLog log(directory.path(), 0, "j", 0);
  log.line(Stream::kOut, "abc", false);
  log.line(Stream::kOut, "def", false);
  log.line(Stream::kErr, "other", true);
  log.line(Stream::kOut, "ghi", true);
  log.flush();
  CHECK(read(directory.path() / "rank-0.log").ends_with("===\nabcdef\nother\nghi\n"));
}

TEST_CASE("a log that cannot be opened is an error, and a failed write is reported once") {
  CHECK_THROWS_AS(sched::ReplicaLog("/proc/nowhere", 0, "j", 0), Error);
  const testing::TemporaryDirectory directory;
  std::filesystem::create_symlink("/dev/full", directory.path() / "rank-0.log");
  sched::ReplicaLog log(directory.path(), 0, "j", 0);
  log.line(Stream::kOut, "text", true);
  const auto warning = log.flush();
  REQUIRE(warning.has_value());
  CHECK(warning->find("No space left on device") != std::string::npos);
  log.line(Stream::kOut, "text", true);
  CHECK_FALSE(log.flush().has_value());
}

}  // namespace replica_log_test
