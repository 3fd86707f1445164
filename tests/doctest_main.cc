// The main function of every unit test program. If no test case matches the filters, the program fails, so that a test
// whose cases were renamed does not succeed by testing nothing. With --skip-if-empty, the test counts as skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "golden.h"

namespace {

bool ran_any = false;

struct RanAny : doctest::IReporter {
  explicit RanAny(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override { ran_any = true; }
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& stats) override { ran_any = stats.numTestCasesPassingFilters > 0; }
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("ran-any", 1, RanAny);

}  // namespace

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  int result = context.run();
  if (!testing::finish_golden_files() && result == 0) result = 1;
  if (result == 0 && !ran_any) {
    std::fputs("no test case passes the filters\n", stderr);
    constexpr int kSkipped = 77;  // as Meson defines it
    const bool skip =
        std::any_of(argv, argv + argc, [](std::string_view argument) { return argument == "--skip-if-empty"; });
    return skip ? kSkipped : 1;
  }
  return result;
}
