// Single instructions of a Dockerfile.
//
// Threading: plain functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "image/dockerfile.h"
#include "image/dockerfile_lines.h"

namespace adaptdl::image {

// What every instruction is made of.
struct InstructionParts {
  std::string name;                // in capitals
  std::vector<std::string> flags;  // as "--name=value", without their quotes
  std::string rest;
};
InstructionParts split_instruction(std::string_view text, char escape);

// The instruction of a line; further lines are read for its heredocs. Throws PlacedError.
Instruction parse_instruction(DockerfileLines& lines, const DockerfileLines::Logical& line);

// Whether a text has no variable, quote or escape, and so is after the expansion what it is before.
bool is_plain(std::string_view text);

// What COPY and ADD must keep to; what is not plain is left for after the expansion, when `expanded` says that nothing
// is. Throws Error without a place.
void check_copy(const Copy& copy, bool expanded);

}  // namespace adaptdl::image
