// The program that executes a step's command, as bytes: see step_exec_program.cc.
#pragma once

#include <string_view>

namespace adaptdl::image {

extern const std::string_view kStepExec;

}  // namespace adaptdl::image
