// The replicas that save and load together: those of the collective if it is initialized, else this process alone.
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

  // Throws UsageError if there are other replicas that cannot be reached.
  static Group for_saving();
  // Without the collective the rank is that of the environment.
  static Group for_loading();

  // Everyone's value, by rank.
  std::vector<std::string> allgather(std::string value, std::string_view purpose) const;
  // Rank 0's value.
  std::string broadcast(std::string value) const;

  // Ends alike on all replicas: if any has an error, throws CheckpointError "ACTION: rank R: ERROR" on each of them.
  void agree_on_success(const std::string& action, const std::optional<std::string>& error) const;
  // "rank R: ", or nothing if there is one replica only.
  std::string prefix(int of_rank) const;
};

// The text of an exception on one line.
std::string first_line(const std::exception& error);

// Runs `step` and gives the text of what it throws, which begins with `what` if it does not say so itself.
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
