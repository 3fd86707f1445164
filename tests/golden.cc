#include "golden.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace testing {
namespace fs = std::filesystem;
namespace {

// The texts of each expression in a test case, in the order in which they were caused.
using Texts = std::map<std::string, std::vector<std::string>>;
// "FILE: TEST CASE" and what its expressions returned.
using Golden = std::map<std::string, Texts>;

constexpr std::string_view kExpression = "  ", kText = "    ";

std::mutex mutex;
std::map<fs::path, Golden> expected;  // by file
std::map<fs::path, Golden> evaluated;

bool updating() { return std::getenv("ADAPTDL_UPDATE_GOLDEN") != nullptr; }

Golden read(const fs::path& file) {
  Golden golden;
  std::ifstream in(file);
  std::string line, test, expression;
  while (std::getline(in, line)) {
    if (line.starts_with(kText)) {
      golden[test][expression].push_back(line.substr(kText.size()));
    } else if (line.starts_with(kExpression)) {
      expression = line.substr(kExpression.size());
    } else {
      test = line;
    }
  }
  return golden;
}

void write(const fs::path& file, const Golden& golden) {
  std::ofstream out(file);
  for (const auto& [test, texts] : golden) {
    out << test << '\n';
    for (const auto& [expression, lines] : texts) {
      out << kExpression << expression << '\n';
      for (const std::string& line : lines) out << kText << line << '\n';
    }
  }
  if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
}

// Returns the expression without what depends on how the source was formatted (line breaks, spaces inside of
// parentheses, the division of a string literal) and without the namespace of helper functions.
std::string normalized(std::string expression) {
  for (const auto& [from, to] : {std::pair<std::string_view, std::string_view>{"\n", " "},
                                 {"\" \"", ""},
                                 {"( ", "("},
                                 {" )", ")"},
                                 {"::testing::", ""}}) {
    for (std::size_t at = 0; (at = expression.find(from, at)) != std::string::npos;)
      expression.replace(at, from.size(), to);
  }
  return expression;
}

bool all_compared(const Texts& known, const Texts& compared) {
  for (const auto& [expression, texts] : known) {
    const auto found = compared.find(expression);
    if (found == compared.end() || found->second.size() < texts.size()) return false;
  }
  return true;
}

}  // namespace

std::string without_temporary_names(std::string text) {
  const std::string parent = (fs::temp_directory_path() / "x").parent_path().string() + '/';
  for (std::size_t at = 0; (at = text.find(parent, at)) != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of("/ :'", at + parent.size()), text.size());
    text.replace(at, end - at, "TEMPORARY");
  }
  return text;
}

std::string golden(const std::string& expression, const std::string& actual) {
  if (actual.empty() || actual.find('\n') != std::string::npos)
    throw std::invalid_argument("expected one line of text, not '" + actual + "'");
  const auto& test = *doctest::getContextOptions()->currentTest;
  const fs::path source(test.m_file.c_str());
  const fs::path file = fs::path(ADAPTDL_UNIT_TESTS) / source.parent_path().filename() / "messages.golden";
  const std::string heading = source.filename().string() + ": " + test.m_name, key = normalized(expression);

  const std::lock_guard lock(mutex);
  auto& texts = evaluated[file][heading][key];
  texts.push_back(actual);
  if (updating()) return actual;
  if (!expected.contains(file)) expected[file] = read(file);
  const auto& known = expected[file][heading][key];
  return texts.size() <= known.size() ? known[texts.size() - 1]
                                      : "(not in " + file.string() + "; run tests/update_golden)";
}

bool finish_golden_files() {
  bool same = true;
  for (auto& [file, tests] : evaluated) {
    Golden golden = read(file);
    for (auto& [heading, texts] : tests) {
      if (!updating() && !all_compared(golden[heading], texts)) {
        std::fprintf(stderr, "%s: not all texts of '%s' were compared; run tests/update_golden\n", file.c_str(),
                     heading.c_str());
        same = false;
      }
      golden[heading] = texts;
    }
    if (updating()) write(file, golden);
  }
  return same;
}

}  // namespace testing
