#include "simulator/csv.h"

#include <doctest/doctest.h>

#include <limits>

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
  CHECK(wrong("") == "f.csv:1:1: the file is empty; expected a header with the columns name,size");
  CHECK(wrong("\n\n").starts_with("f.csv:1:1: the file is empty"));
  CHECK(wrong("name,size\n") == "f.csv:1:10: no rows after the header; add at least one");
  const TemporaryDirectory directory;
  CHECK(error_of(directory, [&] {
          Csv(directory.path() / "none.csv", {"name"});
        }).starts_with("cannot read none.csv: No such file or directory"));
  std::filesystem::create_directory(directory.path() / "d");
  CHECK(error_of(directory, [&] { Csv(directory.path() / "d", {"name"}); }) == "d: is a directory; expected a file");
}

TEST_CASE("a malformed header or row is rejected with its line and column") {
  CHECK(wrong("name\na\n") == "f.csv:1:1: column 'size' not found; the header must have the columns name,size");
  CHECK(wrong("name,size,name\na,1,b\n") == "f.csv:1:11: duplicate column 'name'; keep one");
  CHECK(wrong("name,size\na,1\nb\n") ==
        "f.csv:3:2: the row has 1 cells, but the header has 2 columns; add the missing cells");
  CHECK(wrong("name,size\na,1,2\n") ==
        "f.csv:2:5: the row has 3 cells, but the header has 2 columns; remove the extra cells");
  CHECK(wrong("name,size\na,1,\n").starts_with("f.csv:2:5: the row has 3 cells"));
  CHECK(wrong("name,size\n\"a,1\n") == "f.csv:2:1: the quote is not closed; end the cell with \"");
  CHECK(wrong("name,size\n\"a\"b,1\n") == "f.csv:2:4: unexpected text after a quoted cell; expected a comma");
}

TEST_CASE("control characters and invalid UTF-8 are rejected") {
  using namespace std::string_view_literals;
  CHECK(wrong("name,size\na\0b,1\n"sv) == "f.csv:2:2: byte 0x00 is a control character; save the file as plain CSV");
  CHECK(wrong("name,size\n\x1B[31m,1\n") == "f.csv:2:1: byte 0x1b is a control character; save the file as plain CSV");
  CHECK(wrong("name,size\na\xFF,1\n") == "f.csv:2:1: the line is not valid UTF-8; save the file in that encoding");
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
  CHECK(wrong("name,size\na,x\n", number) == "f.csv:2:3: invalid size 'x': expected a finite number, such as 0.25");
  CHECK(wrong("name,size\na,-0.5\n", number) == "f.csv:2:3: invalid size '-0.5': must be at least 0");
  CHECK(wrong("name,size\na,1e200\n", number) == "f.csv:2:3: invalid size '1e200': must be at most 1e+100");
  CHECK(wrong("name,size\na,1e3\n", number) == "");
}

TEST_CASE("a count must be a whole number from 1 to 1000000000") {
  const auto count = [](const Csv& csv) { csv.count(0, "size"); };
  for (const char* text : {"0", "-1", "1.5", "1e3", "", "2000000000", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK(wrong(std::string("name,size\na,") + text + "\n", count)
              .ends_with("expected a whole number from 1 to 1000000000"));
  }
  CHECK(wrong("name,size\na,12\n", count) == "");
}

}  // namespace
}  // namespace adaptdl::sched::csv_test
