#include "command/base/suggest.h"

#include <doctest/doctest.h>

namespace suggest_test {

using namespace adaptdl::cli;

TEST_CASE("the edit distance counts insertions, deletions, replacements and swaps") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("run", "run") == 0);
  CHECK(edit_distance("", "run") == 3);
  CHECK(edit_distance("rn", "run") == 1);
  CHECK(edit_distance("urn", "run") == 1);
  CHECK(edit_distance("rum", "run") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("ca", "abc") == 3);
}

TEST_CASE("a mistyped word matches the closest candidate, and an unrelated word matches none") {
  const std::vector<std::string> commands = {"run", "checkpoint", "help", "ls"};
  CHECK(closest("rnu", commands) == "run");
  CHECK(closest("chekpiont", commands) == "checkpoint");
  CHECK(closest("check", commands) == "checkpoint");
  CHECK(closest("hlep", commands) == "help");
  CHECK_FALSE(closest("submit", commands).has_value());
  CHECK_FALSE(closest("xy", commands).has_value());
  CHECK_FALSE(closest("", commands).has_value());
  CHECK_FALSE(closest("run", {}).has_value());
}

}  // namespace suggest_test
