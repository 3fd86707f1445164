#include "base/embedded_library.h"

#include <doctest/doctest.h>

#include <string>

#include "error_of.h"

namespace embedded_library_test {

using adaptdl::load_function;

TEST_CASE("loading an invalid library fails, and the error names what to install") {
  const std::string error = testing::error_of([] { load_function({"not a library", "tests", "the moon"}, "f"); });
  CHECK(error.starts_with("cannot load the library for tests: /proc/self/fd/"));
  CHECK(error.ends_with("; install the moon"));
}

}  // namespace embedded_library_test
