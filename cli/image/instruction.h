// Parses single instructions of a Dockerfile.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "image/dockerfile.h"
#include "image/dockerfile_lines.h"

namespace adaptdl::image {

// The parts of every instruction.
struct InstructionParts {
  std::string name;                // in upper case
  std::vector<std::string> flags;  // such as "--name=value", without their quotes
  std::string rest;
};
InstructionParts split_instruction(std::string_view text, char escape);

// Parses the instruction of a line; further lines are read for its heredocs. Throws PlacedError.
Instruction parse_instruction(DockerfileLines& lines, const DockerfileLines::Logical& line);

// Returns whether a text has no variable, quote or escape, and so is not changed by the expansion.
bool is_plain(std::string_view text);

// Checks a COPY or ADD. Unless `expanded`, texts that are not plain are left for the check after the expansion. Throws
// Error without file and line.
void check_copy(const Copy& copy, bool expanded);

}  // namespace adaptdl::image
