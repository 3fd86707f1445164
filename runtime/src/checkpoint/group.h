// The replicas that save and load together: all replicas in the collective if it is initialized, otherwise only this
// process.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adaptdl/checkpoint.h"

namespace adaptdl::checkpoint {

struct Group {
  int rank = 0;
  int size = 1;

  // Throws UsageError if the job has other replicas but the collective is not initialized.
  static Group for_saving();
  // Without the collective, the rank is taken from the environment and the size is 1.
  static Group for_loading();

  // Returns the values of all replicas, by rank.
  std::vector<std::string> allgather(std::string value, std::string_view purpose) const;
  // Returns the value of rank 0.
  std::string broadcast(std::string value) const;

  // Has the same outcome on all replicas: if any of them passes an error, throws CheckpointError "ACTION: rank R:
  // ERROR" on each.
  void agree_on_success(const std::string& action, const std::optional<std::string>& error) const;
  // Returns "rank R: ", or an empty string if there is only one replica.
  std::string prefix(int of_rank) const;
};

// Returns the first line of an exception's text.
std::string first_line(const std::exception& error);

// Runs `step`. If it throws, returns the exception's text, preceded by `what` unless the text already contains it.
template <typename Step>
std::optional<std::string> error_of(const std::string& what, const Step& step) {
  std::string text;
  try {
    step();
    return std::nullopt;
  } catch (const std::exception& error) {
    text = first_line(error);
  } catch (...) {
    text = "unknown exception";
  }
  return what.empty() || text.find(what) != std::string::npos ? text : what + ": " + text;
}

}  // namespace adaptdl::checkpoint
