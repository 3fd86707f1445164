#include "loop/uncaught_errors.h"

#include <cstdlib>
#include <exception>
#include <iostream>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "loop/process_exit.h"

namespace adaptdl::internal {
namespace {

std::terminate_handler before = nullptr;

[[noreturn]] void report() {
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
  } catch (const Error& error) {
    std::cout.flush();
    std::cerr << "error: " << one_line(error.what()) << std::endl;
    exit_process(dynamic_cast<const UsageError*>(&error) != nullptr ? 2 : 1);
  } catch (...) {  // left to the previous handler
  }
  if (before != nullptr) before();
  std::abort();
}

}  // namespace

void report_uncaught_errors() noexcept { before = std::set_terminate(report); }

}  // namespace adaptdl::internal
