// A static program that attempts operations which a sandbox must forbid; see sandbox_probe.cc.
#pragma once

#include <string_view>

namespace testing {

extern const std::string_view kSandboxProbe;

}  // namespace testing
