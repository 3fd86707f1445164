// For tests: a run's directory of checkpoints.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "temporary_directory.h"

namespace remote_checkpoints_support {

namespace fs = std::filesystem;

inline std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

class Directory : public testing::TemporaryDirectory {
 public:
  fs::path operator/(const std::string& name) const { return path() / name; }

  // Writes a checkpoint of a runtime without manifests.
  void add(int number, const std::string& content) const {
    const fs::path checkpoint = path() / ("checkpoint-" + std::to_string(number));
    fs::create_directory(checkpoint);
    std::ofstream(checkpoint / "state") << content;
  }
};

}  // namespace remote_checkpoints_support
