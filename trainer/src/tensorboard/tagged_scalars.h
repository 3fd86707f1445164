// Adds scalars under a common prefix that the program chooses.
#pragma once

#include <cstdint>
#include <string>

#include "adaptdl/torch/summary_writer.h"

namespace adaptdl::internal {

class TaggedScalars {
 public:
  // A "/" follows the prefix, unless the prefix is empty or ends with a slash.
  TaggedScalars(SummaryWriter& writer, std::int64_t step, const std::string& prefix)
      : writer_(writer), step_(step), prefix_(prefix.empty() || prefix.ends_with('/') ? prefix : prefix + "/") {}
  void add(const char* tag, double value) { writer_.add_scalar(prefix_ + tag, value, step_); }

 private:
  SummaryWriter& writer_;
  std::int64_t step_;
  std::string prefix_;
};

}  // namespace adaptdl::internal
