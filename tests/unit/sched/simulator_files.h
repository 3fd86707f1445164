// Directories and files for tests of the simulator.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "adaptdl/error.h"
#include "temporary_directory.h"

namespace adaptdl::sched {

// Returns the installed directory with the paper's measurements.
inline std::filesystem::path osdi21() { return ADAPTDL_OSDI21; }

class TemporaryDirectory : public ::testing::TemporaryDirectory {
 public:
  std::filesystem::path write(const std::filesystem::path& name, std::string_view text) const {
    std::filesystem::create_directories((path() / name).parent_path());
    std::ofstream(path() / name, std::ios::binary) << text;
    return path() / name;
  }
};

// Returns the message that a call throws, with the directory's path removed; "" if it throws nothing.
template <class Call>
std::string error_of(const TemporaryDirectory& directory, Call call) {
  try {
    call();
  } catch (const Error& error) {
    std::string message = error.what();
    const std::string prefix = directory.path().string() + "/";
    for (auto at = message.find(prefix); at != std::string::npos; at = message.find(prefix))
      message.erase(at, prefix.size());
    return message;
  }
  return "";
}

}  // namespace adaptdl::sched
