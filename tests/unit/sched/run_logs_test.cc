#include "local/record/run_logs.h"

#include <doctest/doctest.h>

#include <fstream>

#include "local/replica/replica_log.h"
#include "temporary_directory.h"

namespace run_logs_test {

using namespace adaptdl;
using sched::Stream;
namespace fs = std::filesystem;

namespace {

// Collects the lines that are read, without the headers of starts.
struct Lines {
  std::string text;
  sched::RunLogs::Sink sink = [this](int rank, std::string_view line) {
    if (!line.starts_with("===")) text += std::to_string(rank) + ':' + std::string(line) + ' ';
  };
};

struct Writer {
  explicit Writer(const fs::path& directory) {
    for (int rank = 0; rank < 3; ++rank) logs.push_back(std::make_unique<sched::ReplicaLog>(directory, rank, "j", 0));
  }
  void write(int rank, std::string_view line, bool ends = true) {
    logs[static_cast<std::size_t>(rank)]->line(Stream::kOut, line, ends);
    logs[static_cast<std::size_t>(rank)]->flush();
  }
  std::vector<std::unique_ptr<sched::ReplicaLog>> logs;
};

}  // namespace

TEST_CASE("lines of several ranks are returned in the order in which they were written") {
  const testing::TemporaryDirectory directory;
  Writer writer(directory.path());
  for (const auto& [rank, line] : {std::pair(1, "a"), {0, "b"}, {2, "c"}, {1, "d"}, {0, "e"}}) writer.write(rank, line);
  Lines lines;
  sched::RunLogs(directory.path()).finish(lines.sink);
  CHECK(lines.text == "1:a 0:b 2:c 1:d 0:e ");
}

TEST_CASE("a reader that follows a log gets each line complete and only once") {
  const testing::TemporaryDirectory directory;
  Writer writer(directory.path());
  sched::RunLogs reader(directory.path());
  Lines lines;
  writer.write(2, "a");
  reader.read(lines.sink);
  CHECK(lines.text == "2:a ");
  writer.write(2, "hal", false);
  writer.write(0, "b");
  reader.read(lines.sink);
  CHECK(lines.text == "2:a 0:b ");
  writer.write(2, "ves");
  reader.read(lines.sink);
  reader.read(lines.sink);
  CHECK(lines.text == "2:a 0:b 2:halves ");
  writer.write(1, "no end", false);
  reader.finish(lines.sink);
  CHECK(lines.text == "2:a 0:b 2:halves 1:no end ");
}

TEST_CASE("a reader of one rank returns only that rank's lines") {
  const testing::TemporaryDirectory directory;
  Writer writer(directory.path());
  writer.write(0, "a");
  writer.write(1, "b");
  sched::RunLogs reader(directory.path(), 1);
  Lines lines;
  reader.read(lines.sink);
  writer.write(1, "c");
  reader.finish(lines.sink);
  CHECK(lines.text == "1:b 1:c ");
  CHECK(sched::logged_ranks(directory.path()) == std::set<int>{0, 1, 2});
}

TEST_CASE("no line is lost if the order file is missing or damaged") {
  const testing::TemporaryDirectory directory;
  {
    Writer writer(directory.path());
    writer.write(1, "a");
    writer.write(0, "b");
  }
  std::ofstream(directory.path() / ".order") << "nonsense\n7 100\n1 1000000\n";
  Lines damaged;
  sched::RunLogs(directory.path()).finish(damaged.sink);
  CHECK(damaged.text == "1:a 0:b ");
  fs::remove(directory.path() / ".order");
  std::ofstream(directory.path() / "rank-x.log") << "no rank\n";
  Lines none;
  sched::RunLogs(directory.path()).finish(none.sink);
  CHECK(none.text == "0:b 1:a ");
  Lines nowhere;
  sched::RunLogs(directory.path() / "nowhere").finish(nowhere.sink);
  CHECK(nowhere.text.empty());
}

}  // namespace run_logs_test
