#include "simulator/csv.h"

#include <doctest/doctest.h>

#include <limits>

#include "golden.h"
#include "simulator_files.h"

namespace adaptdl::sched::csv_test {
namespace {

// Returns the error for a file with this text, without the file name.
std::string wrong(std::string_view text, auto use) {
  const TemporaryDirectory directory;
  const auto file = directory.write("f.csv", text);
  const std::string error = error_of(directory, [&] { use(Csv(file, {"name", "size"})); });
  CHECK(error.find('\n') == std::string::npos);
  return error;
}
std::string wrong(std::string_view text) {
  return wrong(text, [](const Csv&) {});
}

TEST_CASE("cells are found by column name, in any order of columns") {
  const TemporaryDirectory directory;
  const Csv csv(directory.write("f.csv", "size,more,name\n1,x,a\n2,y,b\n"), {"name", "size"});
  REQUIRE(csv.rows() == 2);
  CHECK(csv.text(1, "name") == "b");
  CHECK(csv.number(0, "size") == 1);
  CHECK(csv.has("more"));
  CHECK_FALSE(csv.has("less"));
}

TEST_CASE("a byte order mark, CRLF, spaces, blank lines and a missing final newline are accepted") {
  const TemporaryDirectory directory;
  const Csv csv(directory.write("f.csv", "\xEF\xBB\xBFname,size\r\n\r\n a ,\t1\r\n\n  \nb,2"), {"name", "size"});
  REQUIRE(csv.rows() == 2);
  CHECK(csv.text(0, "name") == "a");
  CHECK(csv.number(0, "size") == 1);
  CHECK(csv.number(1, "size") == 2);
}

TEST_CASE("quoted cells can contain commas and quotes") {
  const TemporaryDirectory directory;
  const Csv csv(directory.write("f.csv", "name,size\n\"a,\"\"b\"\"\" ,\"3\"\n\"\",4\n"), {"name", "size"});
  CHECK(csv.text(0, "name") == "a,\"b\"");
  CHECK(csv.number(0, "size") == 3);
  CHECK(csv.text(1, "name") == "");
}

TEST_CASE("an empty file, a file without rows, a missing file or a directory is rejected") {
  CHECK_GOLDEN(wrong(""));
  CHECK_GOLDEN(wrong("\n\n"));
  CHECK_GOLDEN(wrong("name,size\n"));
  const TemporaryDirectory directory;
  CHECK_GOLDEN(error_of(directory, [&] { Csv(directory.path() / "none.csv", {"name"}); }));
  std::filesystem::create_directory(directory.path() / "d");
  CHECK_GOLDEN(error_of(directory, [&] { Csv(directory.path() / "d", {"name"}); }));
}

TEST_CASE("a malformed header or row is rejected with its line and column") {
  CHECK_GOLDEN(wrong("name\na\n"));
  CHECK_GOLDEN(wrong("name,size,name\na,1,b\n"));
  CHECK_GOLDEN(wrong("name,size\na,1\nb\n"));
  CHECK_GOLDEN(wrong("name,size\na,1,2\n"));
  CHECK_GOLDEN(wrong("name,size\na,1,\n"));
  CHECK_GOLDEN(wrong("name,size\n\"a,1\n"));
  CHECK_GOLDEN(wrong("name,size\n\"a\"b,1\n"));
}

TEST_CASE("control characters and invalid UTF-8 are rejected") {
  using namespace std::string_view_literals;
  CHECK_GOLDEN(wrong("name,size\na\0b,1\n"sv));
  CHECK_GOLDEN(wrong("name,size\n\x1B[31m,1\n"));
  CHECK_GOLDEN(wrong("name,size\na\xFF,1\n"));
}

TEST_CASE("column numbers in errors count characters, not bytes") {
  CHECK(wrong("name,size\n\xC3\xA4\xC3\xB6,x\n", [](const Csv& csv) {
          csv.number(0, "size");
        }).starts_with("f.csv:2:4:"));
}

TEST_CASE("a number that is invalid or out of range is rejected") {
  const auto number = [](const Csv& csv) { csv.number(0, "size"); };
  for (const char* text : {"x", "", "1.5.2", "nan", "inf", "-inf", "0x10", "1e999", "1 2"}) {
    CAPTURE(text);
    CHECK(wrong(std::string("name,size\na,") + text + "\n", number).starts_with("f.csv:2:3: "));
  }
  CHECK_GOLDEN(wrong("name,size\na,x\n", number));
  CHECK_GOLDEN(wrong("name,size\na,-0.5\n", number));
  CHECK_GOLDEN(wrong("name,size\na,1e200\n", number));
  CHECK(wrong("name,size\na,1e3\n", number) == "");
}

TEST_CASE("a count must be an integer from 1 to 1000000000") {
  const auto count = [](const Csv& csv) { csv.count(0, "size"); };
  for (const char* text : {"0", "-1", "1.5", "1e3", "", "2000000000", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK_GOLDEN(wrong(std::string("name,size\na,") + text + "\n", count));
  }
  CHECK(wrong("name,size\na,12\n", count) == "");
}

}  // namespace
}  // namespace adaptdl::sched::csv_test
