#include <doctest/doctest.h>

#include "adaptdl/error.h"
#include "kube/copy/place.h"

namespace copy_place_test {

using namespace adaptdl;
using namespace adaptdl::kube;

TEST_CASE("JOB:PATH is a path in a job, and any other path is local") {
  CHECK(parse_place("digits:/adaptdl/share/x").job == "digits");
  CHECK(parse_place("digits:/adaptdl/share/x:y").path == "/adaptdl/share/x:y");
  CHECK(parse_place("team/digits-2.b:x").job == "team/digits-2.b");
  CHECK(parse_place("./digits:x").job.empty());
  CHECK(parse_place("/tmp/digits:x").job.empty());
  CHECK(parse_place("a b:x").path == "a b:x");
  CHECK(parse_place("-").stream());
  CHECK_FALSE(parse_place("digits:-").stream());
  CHECK_THROWS_AS(parse_place("digits:"), UsageError);
  CHECK_THROWS_AS(parse_place(""), UsageError);
}

TEST_CASE("a path is split into directory and base name, and a path with a leading dash is prefixed with ./") {
  CHECK(base_name("/a/b") == "b");
  CHECK(base_name("/a/b//") == "b");
  CHECK(base_name("b") == "b");
  CHECK(base_name("/") == "");
  CHECK(base_name("/a/.") == "");
  CHECK(base_name("..") == "");
  CHECK(directory_of("/a/b") == "/a");
  CHECK(directory_of("/a") == "/");
  CHECK(directory_of("a/") == ".");
  CHECK(as_argument("-rf") == "./-rf");
  CHECK(as_argument("/-rf") == "/-rf");
}

TEST_CASE("the target path is determined by the rules of cp") {
  CHECK(target_path("/a/x", Found::kFile, "y", Found::kNothing) == "y");
  CHECK(target_path("/a/x", Found::kFile, "y", Found::kFile) == "y");
  CHECK(target_path("/a/x", Found::kFile, "y/", Found::kDirectory) == "y/x");
  CHECK(target_path("/a/x/", Found::kDirectory, "y", Found::kDirectory) == "y/x");
  CHECK(target_path("/a/x/.", Found::kDirectory, "y", Found::kDirectory) == "y");
  CHECK(target_path("/a/x", Found::kDirectory, "y/", Found::kNothing) == "y");
  CHECK_THROWS_AS(target_path("/a/x", Found::kFile, "y/", Found::kNothing), UsageError);
  CHECK_THROWS_AS(target_path("/a/x", Found::kDirectory, "y", Found::kFile), UsageError);
}

}  // namespace copy_place_test
