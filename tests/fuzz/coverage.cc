// Tells libFuzzer which code ran, for objects that GCC compiled with -fsanitize-coverage=trace-pc: each basic block
// calls
// __sanitizer_cov_trace_pc. libFuzzer itself only follows Clang's kinds of instrumentation, but it takes extra
// counters. Fuzz targets are linked with --wrap, so that they call the function here and not libFuzzer's, which only
// refuses.
#include <cstddef>
#include <cstdint>

namespace {

constexpr std::size_t kCounters = 1 << 16;
[[gnu::section("__libfuzzer_extra_counters")]] std::uint8_t counters[kCounters];

}  // namespace

extern "C" {

void __wrap___sanitizer_cov_trace_pc() {
  const auto pc = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  ++counters[(pc ^ pc >> 16) % kCounters];
}

// For programs of the same build that are not fuzz targets.
[[gnu::weak]] void __sanitizer_cov_trace_pc() {}

// Comparisons of floating-point numbers, which only GCC reports.
void __sanitizer_cov_trace_cmpf(float, float) {}
void __sanitizer_cov_trace_cmpd(double, double) {}
}
