#include "terminal/table.h"

#include <doctest/doctest.h>

namespace table_test {

using namespace adaptdl::cli;

namespace {

Table table() {
  Table result({{"NAME"}, {"SIZE", Table::Align::kRight}, {"NOTE"}});
  result.add_row({"a", "1.00 KiB", ""});
  result.add_row({"longer ü", "7 B", "fine"});
  return result;
}

}  // namespace

TEST_CASE("the columns of a table are aligned, two spaces apart, without trailing blanks") {
  CHECK(table().render() ==
        "NAME          SIZE  NOTE\n"
        "a         1.00 KiB\n"
        "longer ü       7 B  fine\n");
}

TEST_CASE("the lines of a table are truncated to the given width and never wrapped") {
  CHECK(table().render(12) ==
        "NAME       …\n"
        "a         1…\n"
        "longer ü   …\n");
}

TEST_CASE("a line break in a cell is escaped") {
  Table result({{"NAME"}});
  result.add_row({"two\nlines"});
  CHECK(result.render() == "NAME\ntwo\\x0alines\n");
}

TEST_CASE("a row with the wrong number of cells is rejected") {
  Table result({{"A"}, {"B"}});
  CHECK_THROWS(result.add_row({"1"}));
  CHECK(result.empty());
}

}  // namespace table_test
