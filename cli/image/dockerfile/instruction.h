// Parses single Dockerfile instructions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "image/dockerfile/dockerfile.h"
#include "image/dockerfile/dockerfile_lines.h"

namespace adaptdl::image {

// The parts that all instructions have in common.
struct InstructionParts {
  std::string name;                // in upper case
  std::vector<std::string> flags;  // such as "--name=value", without their quotes
  std::string rest;
};
InstructionParts split_instruction(std::string_view text, char escape);

// Parses the instruction on a line, and reads further lines for its heredocs. Throws PlacedError.
Instruction parse_instruction(DockerfileLines& lines, const DockerfileLines::Logical& line);

}  // namespace adaptdl::image
