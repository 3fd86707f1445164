// Shared by the tests of the filter for a step's system calls.
#pragma once

namespace image_seccomp_support {

// The bit that marks the calls of the x32 architecture.
inline constexpr long kX32 = 0x40000000;

}  // namespace image_seccomp_support
