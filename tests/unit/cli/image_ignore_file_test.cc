#include "image/dockerfile/ignore_file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>

#include "adaptdl/error.h"
#include "golden.h"
#include "image/base/clean_path.h"
#include "temporary_directory.h"

namespace image_ignore_file_test {

using namespace adaptdl::image;

namespace {

struct Case {
  const char* text;
  const char* path;
  bool ignored;
};

// The expected results are those of moby's pattern matcher.
const Case kCases[] = {
    {"", "a", false},
    {"**", "file", true},
    {"**", "dir/file", true},
    {"**/", "file", true},
    {"**/", "dir/file", true},
    {"**/**", "dir/file", true},
    {"dir/**", "dir/file", true},
    {"dir/**", "dir/dir2/file", true},
    {"dir/**", "dir", false},
    {"**/dir2/*", "dir/dir2/file", true},
    {"**/dir2/*", "dir/dir2/dir2/file", true},
    {"**/dir2/*", "dir/dir2", false},
    {"**/dir2/**", "dir/dir2/dir2/file", true},
    {"**file", "file", true},
    {"**file", "dir/file", true},
    {"**file", "dir/dirfile", true},
    {"**/file", "dir/file", true},
    {"**/file", "dir/dir/file", true},
    {"**/file", "dir/a_file", false},
    {"**/file*", "dir/dir/file.txt", true},
    {"**file*", "dir/file.txt", true},
    {"**file*", "dir/a_file.txt", false},
    {"**/file*txt", "dir/dir/file.txt", true},
    {"**/file*.txt*", "dir/dir/file.txt", true},
    {"**/**/*.txt", "dir/dir/file.txt", true},
    {"**/**/*.txt2", "dir/dir/file.txt", false},
    {"**/*.txt", "file.txt", true},
    {"a**/*.txt", "a/file.txt", true},
    {"a**/*.txt", "a/dir/file.txt", true},
    {"a/*.txt", "a/dir/file.txt", false},
    {"a/*.txt", "a/file.txt", true},
    {"a/*.txt**", "a/file.txt", true},
    {"a[b-d]e", "ae", false},
    {"a[b-d]e", "ace", true},
    {"a[b-d]e", "aae", false},
    {"a[^b-d]e", "aze", true},
    {".*", ".foo", true},
    {".*", "foo", false},
    {"abc.def", "abcdef", false},
    {"abc.def", "abc.def", true},
    {"abc.def", "abcZdef", false},
    {"abc?def", "abcZdef", true},
    {"abc?def",
     "abc\xc3\xa9"
     "def",
     true},
    {"abc?def", "abc/def", false},
    {"a\\*b", "a*b", true},
    {"a\\*b", "axb", false},
    {"a\\\\", "a\\", true},
    {"**/foo/bar", "foo/bar", true},
    {"**/foo/bar", "dir/foo/bar", true},
    {"**/foo/bar", "dir/dir2/foo/bar", true},
    {"abc/**", "abc", false},
    {"abc/**", "abc/def/ghi", true},
    {"abc/**/def", "abc/def", true},
    {"abc/**/def", "abc/x/y/def", true},
    {"abc/**/def", "abc/xdef", false},
    {"**/.foo", "bar/.foo", true},
    {"**/.foo", "bar.foo", false},
    {"a(b)c/def", "a(b)c/def", true},
    {"a(b)c/def", "a(b)c/xyz", false},
    {"a.|)$(}+{bc", "a.|)$(}+{bc", true},
    {"foo**", "foobar/baz", true},
    // A pattern that matches a directory matches everything below it.
    {"dir", "dir/a/b", true},
    {"*", "dir/a/b", true},
    {"*/a", "dir/a/b", true},
    {"dir", "dir2/a", false},
    // Patterns are cleaned before they are compared, and comments are skipped.
    {"/dir", "dir/a", true},
    {"dir/", "dir/a", true},
    {"./dir//a/.", "dir/a", true},
    {"x/../dir", "dir", true},
    {"../dir", "dir", false},
    {"  dir\t\r", "dir", true},
    {"# dir", "dir", false},
    {" # dir", "# dir", true},
    {"\xef\xbb\xbf"
     "dir",
     "dir", true},
    {".", "dir", false},
    {"/", "dir", false},
    // Patterns and exceptions apply in order.
    {"*\n!keep", "keep", false},
    {"*\n!keep", "keep/x", false},
    {"!keep\n*", "keep", true},
    {"*.md\n!README*.md\nREADME-secret.md", "README-secret.md", true},
    {"*.md\n!README*.md\nREADME-secret.md", "README-x.md", false},
    {"*.md\nREADME-secret.md\n!README*.md", "README-secret.md", false},
    {"dir\n!dir/a/b", "dir/a/b", false},
    {"dir\n!dir/a/b", "dir/a/c", true},
    {"dir/**\n!**/*.txt", "dir/a/x.txt", false},
    {"dir\n! dir/a ", "dir/a", false},
    {"dir/sub\n!dir", "dir/sub/a", false},
    {"*\n!/keep", "keep", false},
};

struct SkipCase {
  const char* text;
  const char* directory;
  bool skipped;
};

const SkipCase kSkipCases[] = {
    {"dir", "dir", true},
    {"dir", "other", false},
    {"dir\n!dir/a", "dir", false},
    {"dir\n!dir/a", "dir/b", true},
    {"dir\n!dir/a/b/c", "dir/a/b", false},
    {"dir\n!dir2/a", "dir", true},
    {"dir\n!**/*.txt", "dir", false},
    {"dir\n!*.txt", "dir", true},
    {"dir\n!*/a", "dir", false},
    {"dir\n!*/a", "dir/b", true},
    {"node_modules\n!src/**", "node_modules", true},
};

}  // namespace

TEST_CASE("ignore patterns match the same paths as in Moby") {
  for (const Case& c : kCases) {
    CAPTURE(c.text);
    CAPTURE(c.path);
    CHECK(IgnoreFile::parse(c.text, ".dockerignore").ignores(c.path) == c.ignored);
  }
}

TEST_CASE("a directory is skipped only if no exception can match below it") {
  for (const SkipCase& c : kSkipCases) {
    CAPTURE(c.text);
    CAPTURE(c.directory);
    CHECK(IgnoreFile::parse(c.text, ".dockerignore").skips_directory(c.directory) == c.skipped);
  }
}

TEST_CASE("the error for an invalid pattern gives the file, line and reason") {
  const auto error_of = [](const char* text) -> std::string {
    try {
      IgnoreFile::parse(text, "app.dockerignore");
    } catch (const adaptdl::Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK_GOLDEN(error_of("a\n\nb[c"));
  CHECK_GOLDEN(error_of("a[]b]"));
  CHECK_GOLDEN(error_of("a[z-b]"));
  CHECK_GOLDEN(error_of("a\\"));
  CHECK_GOLDEN(error_of("# x\n!"));
}

TEST_CASE("a Dockerfile's own ignore file takes precedence over the context's .dockerignore") {
  const testing::TemporaryDirectory directory;
  const std::filesystem::path context = directory.path();
  const auto write = [](const std::filesystem::path& file, const char* text) { std::ofstream(file) << text; };
  CHECK(IgnoreFile::of_build(context, context / "Dockerfile").empty());
  write(context / ".dockerignore", "one");
  CHECK(IgnoreFile::of_build(context, context / "Dockerfile").ignores("one"));
  std::filesystem::create_directory(context / "docker");
  write(context / "docker/app.Dockerfile.dockerignore", "two");
  CHECK_FALSE(IgnoreFile::of_build(context, context / "docker/app.Dockerfile").ignores("one"));
  CHECK(IgnoreFile::of_build(context, context / "docker/app.Dockerfile").ignores("two"));
  CHECK(IgnoreFile::of_build(context, context / "docker/other.Dockerfile").ignores("one"));
}

TEST_CASE("a pattern with many wildcards does not cause exponential backtracking") {
  std::string pattern, path(3000, 'a');
  for (int i = 0; i < 300; ++i) pattern += "*a";
  CHECK_FALSE(IgnoreFile::parse(pattern + "b", "x").ignores(path));
}

TEST_CASE("clean_path normalizes a path lexically") {
  CHECK(clean_path("") == ".");
  CHECK(clean_path("a//b/./c/") == "a/b/c");
  CHECK(clean_path("a/b/../../..") == "..");
  CHECK(clean_path("/../a/..") == "/");
  CHECK(clean_path("../../a") == "../../a");
}

}  // namespace image_ignore_file_test
