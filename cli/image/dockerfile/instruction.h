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

// Returns whether a text contains no variable, quote or escape, so that expansion does not change it.
bool is_plain(std::string_view text);

// Checks a COPY or ADD. Unless `expanded` is true, skips texts that are not plain; they are checked after expansion.
// Throws Error without file or line.
void check_copy(const Copy& copy, bool expanded);

}  // namespace adaptdl::image
