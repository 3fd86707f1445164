#include <doctest/doctest.h>

#include "image/one_line.h"

using adaptdl::image::one_line;

TEST_CASE("a text from elsewhere is one printable line of UTF-8, and no longer than asked for") {
  CHECK(one_line("a\r\n\tb \x1b[31m c\x7f") == "a b [31m c");
  CHECK(one_line("\xff ok \xff \xc3\xa9 \xff") == "ok \xc3\xa9");
  CHECK(one_line("aaaa\xc3\xa9", 5) == "aaaa");
}
