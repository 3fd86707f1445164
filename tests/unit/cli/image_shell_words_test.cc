#include "image/dockerfile/shell_words.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "adaptdl/error.h"
#include "golden.h"

namespace image_shell_words_test {

using namespace adaptdl::image;

namespace {

std::optional<std::string> variable(const std::string& name) {
  static const std::map<std::string, std::string> values = {
      {"PWD", "/home"},      {"SHELL", "bash"}, {"KOREAN", "한국어"},          {"EMPTY", ""},     {"str", "foobarbaz"},
      {"space", "abc  def"}, {"dots", "1.2.3"}, {"path", "/usr/lib/x.tar.gz"}, {"star", "a*b*c"}, {"leading", "  ab c"},
  };
  const auto found = values.find(name);
  return found == values.end() ? std::nullopt : std::make_optional(found->second);
}

std::string expanded(const char* text, const WordRules& rules = {}) {
  try {
    return expand_word(text, rules, variable);
  } catch (const adaptdl::Error& error) {
    return std::string("error: ") + error.what();
  }
}

struct Case {
  const char* text;
  const char* result;
};

const Case kWords[] = {
    {"hello", "hello"},
    {"he'll'o", "hello"},
    {"he\\'llo", "he'llo"},
    {"abc\\tdef", "abctdef"},
    {"\"abc\\tdef\"", "abc\\tdef"},
    {"\"abc\\\\tdef\"", "abc\\tdef"},
    {"'abc\\tdef'", "abc\\tdef"},
    {"hello\\", "hello"},
    {"hello\\\\", "hello\\"},
    {"\"hel'lo\"", "hel'lo"},
    {"'hello\\'", "hello\\"},
    {"\"''\"", "''"},
    {"$.", "$."},
    {"he$1x", "hex"},
    {"he$.x", "he$.x"},
    {"he$pwd.", "he."},
    {"he$PWD", "he/home"},
    {"he\\$PWD", "he$PWD"},
    {"he\\\\$PWD", "he\\/home"},
    {"\"he\\$PWD\"", "he$PWD"},
    {"\"he\\\\$PWD\"", "he\\/home"},
    {"\\${}", "${}"},
    {"he${hi}xx", "hexx"},
    {"he${PWD}", "he/home"},
    {"he${UNSET:-000}xx", "he000xx"},
    {"he${PWD:-000}xx", "he/homexx"},
    {"he${UNSET:-${PWD:-yyy}}xx", "he/homexx"},
    {"he${UNSET:-${YYY:-yyy}}xx", "heyyyxx"},
    {"${EMPTY-x}.${EMPTY:-x}.${UNSET-x}", ".x.x"},
    {"${EMPTY+x}.${EMPTY:+x}.${UNSET+x}.${PWD+x}", "x...x"},
    {"he${UNSET:+${PWD}}xx", "hexx"},
    {"he${PWD:+${SHELL}}xx", "hebashxx"},
    {"he${PWD?}${EMPTY?}${PWD:?no}", "he/home/home"},
    {"'he${XX}'", "he${XX}"},
    {"\"he'$PWD'\"", "he'/home'"},
    {"'\"hello\"'", "\"hello\""},
    {"he${PWD:+${PWD}:}xx", "he/home:xx"},
    {"he${UNSET:-\\$PWD:}xx", "he$PWD:xx"},
    {"he${UNSET:-\\${PWD}z}xx", "he${PWDz}xx"},
    {"안'녕'하세요", "안녕하세요"},
    {"안녕$KOREAN", "안녕한국어"},
    {"${aaa}}", "}"},
    {"${aaa:-bbb {foo}", "bbb {foo"},
    {"$1${1}$999aaa${001:-b}", "aaab"},
    {"$@@@ ${*} ${#} ${?:-q} ${-} $$ ${!} ${0:-z}", "@@   q    z"},
    {"${str#f*b} ${str##f*b} ${str%b*} ${str%%b*}", "arbaz az foobar foo"},
    {"${str#x} ${str%x} ${str#*} ${str##*}.", "foobarbaz foobarbaz foobarbaz ."},
    {"${str/ba/fo} ${str//ba/fo} ${str/b*/} ${str//?/x}", "fooforbaz fooforfoz foo xxxxxxxxx"},
    {"${dots%.*} ${dots%%.*} ${dots#*.} ${dots//./_}", "1.2 1 2.3 1_2_3"},
    {"${path##*/} ${path%/*} ${path//\\//:}", "x.tar.gz /usr/lib :usr:lib:x.tar.gz"},
    {"${star//\\*/+} ${star#a\\*}", "a+b+c b*c"},
    {"${KOREAN#?} ${KOREAN%?} ${KOREAN/국/x}", "국어 한국 한x어"},
    {"${UNSET#a} ${UNSET/a/b}.", " ."},
    {"a < b << c", "a < b << c"},
    {"he'llo", "error: unclosed single quote"},
    {"\"hello\\\"", "error: unclosed double quote"},
    {"${}", "error: missing variable name after '${'"},
    {"${:-b}", "error: missing variable name after '${'"},
    {"he${PWD", "error: missing '}' after '${'"},
    {"${aaa:-bbb ${foo}", "error: missing '}' after '${'"},
    {"he${.}", "error: unknown substitution '${.': expected :- - :+ + :? ? # ## % %% / or //"},
    {"he${UNSET:YYY}", "error: unknown substitution '${UNSET:Y': expected :- - :+ + :? ? # ## % %% / or //"},
    {"he${PWD:=0}", "error: unknown substitution '${PWD:=': expected :- - :+ + :? ? # ## % %% / or //"},
    {"${PWD:#x}", "error: unknown substitution '${PWD:#': expected :- - :+ + :? ? # ## % %% / or //"},
    {"he${UNSET?}", "error: UNSET: variable is not set"},
    {"he${EMPTY:?}", "error: EMPTY: variable is empty"},
    {"he${UNSET:?give it by --build-arg}", "error: UNSET: give it by --build-arg"},
    {"${PWD/x}", "error: missing '/' after '${'"},
    {"${PWD#\\a}", "error: invalid pattern '\\a': \\ can only escape * ? \\ } and /"},
};

}  // namespace

TEST_CASE("variables, substitutions, quotes and escapes are expanded as in BuildKit") {
  for (const Case& c : kWords) {
    CAPTURE(c.text);
    CHECK(expanded(c.text) == c.result);
  }
}

TEST_CASE("the escape directive's character replaces the backslash as the escape character") {
  CHECK(expanded("c:\\dir`$PWD$PWD", {.escape = '`'}) == "c:\\dir$PWD/home");
  CHECK(expanded("\"`\" \\n\"", {.escape = '`'}) == "\" \\n");
}

TEST_CASE("a heredoc keeps its quotes, and its variables are expanded") {
  CHECK(expanded("echo \"$PWD\" '$PWD' \\$PWD\n", {.plain_quotes = true}) == "echo \"/home\" '/home' $PWD\n");
}

TEST_CASE("with keep_unset, references to unset variables are left unexpanded") {
  CHECK(expanded("$UNSET ${UNSET:-$PWD} ${UNSET?} $PWD", {.keep_unset = true}) ==
        "$UNSET ${UNSET:-$PWD} ${UNSET?} /home");
}

TEST_CASE("words are split at unquoted spaces, including those in values") {
  const auto words = [](const char* text) {
    return fmt::format("{}", fmt::join(expand_words(text, {}, variable), ","));
  };
  CHECK(words("hello${space}bye") == "helloabc,defbye");
  CHECK(words("hello\"${space}\"bye") == "helloabc  defbye");
  CHECK(words("hello${leading}def") == "hello,ab,cdef");
  CHECK(words("hello \"${leading}\" def") == "hello,  ab c,def");
  CHECK(words("hello\\ there  x") == "hello there,x");
  CHECK(words("  '' $UNSET ") == "");
  CHECK(words("cat << EOF x") == "cat,<< EOF,x");
}

TEST_CASE("expansion is limited in depth and size") {
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "${x:-";
  CHECK_GOLDEN(expanded((deep + std::string(200, '}')).c_str()));
  const std::string large(std::size_t{1} << 20, 'x');
  CHECK_THROWS_AS(expand_word("$a$a$a$a$a$a$a$a$a", {}, [&](const std::string&) { return large; }), adaptdl::Error);
}

}  // namespace image_shell_words_test
